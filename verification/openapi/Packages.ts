/** Tools that read the OpenAPI document, in the versions that npm fetches. */
export const PACKAGES = [
  "@apidevtools/swagger-parser@13.1.0",
  "@redocly/cli@2.77.0",
  "openapi-typescript@7.13.0",
  "openapi-fetch@0.17.0",
  "@hey-api/openapi-ts@0.99.0",
  // Both generators need this major version.
  "typescript@5.9.3"
]
