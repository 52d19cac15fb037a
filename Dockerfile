# One image for everything: what follows its name is a subcommand of parley, `start` by default.
#   docker build -t parley --build-arg COMMIT=$(git rev-parse HEAD) .
#   docker run --rm -p 127.0.0.1:3000:3000 -v parley:/data parley
FROM node:24-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
# The base image has Node, so the package `node` need not download it.
RUN npm ci --ignore-scripts --no-audit --no-fund
COPY tsconfig.json tsconfig.build.json ./
COPY build build
COPY runners runners
COPY schema schema
COPY src src
# /v1/health and the metric build_info show it.
ARG COMMIT=unknown
RUN npm run build

FROM node:24-bookworm-slim AS dependencies
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
COPY licenses licenses
# Declarations, maps and sources from which packages were built serve nobody who runs them.
RUN npm ci --omit=dev --no-audit --no-fund && \
    find node_modules -type f \( -name "*.map" -o -name "*.d.ts" -o -name "*.d.mts" -o -name "*.d.cts" \) -delete && \
    rm -rf node_modules/effect/src node_modules/@effect/*/src node_modules/.cache && \
    node licenses/Collect.ts && rm licenses/Collect.ts

FROM node:24-bookworm-slim
ENV NODE_ENV=production HOST=0.0.0.0 PORT=3000 DATA_DIR=/data
WORKDIR /app
COPY --from=dependencies /app/node_modules node_modules
COPY --from=dependencies /app/licenses licenses
COPY LICENSE ./
# The compiled files, the bundle and the prepared database, which the npm package contains too.
COPY --from=build /app/dist ./
# V8's code cache is written now, by a server and a node that refuse their settings, and only read later: /app may be
# read-only.
RUN mkdir -p /data node_modules/.cache && chown 1000:1000 /data node_modules/.cache
USER 1000:1000
RUN for command in start runner; do PORT=none node runners/parley.js $command 2> /dev/null; test $? = 1 || exit 1; done
VOLUME /data
EXPOSE 3000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
  CMD ["node", "-e", "fetch('http://127.0.0.1:' + process.env.PORT + '/v1/health').then((answer) => process.exit(answer.ok ? 0 : 1), () => process.exit(1))"]
# Node is process 1 and takes SIGTERM itself. The heap's limits are those of `npm start` (docs/decisions/0006-heap-options.md).
ENTRYPOINT ["node", "--max-semi-space-size=16", "--heap-growing-percent=50", "--initial-old-space-size=64", "--no-allocation-site-pretenuring", "runners/parley.js"]
CMD ["start"]
