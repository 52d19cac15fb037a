import { Context, Data, Effect, Layer, Redacted, Result } from "effect"
import {
  anyText,
  backupPlace,
  consolePeople,
  domains,
  int,
  longSecret,
  make,
  maybe,
  networks,
  oneOf,
  otlpHeaders,
  schemes,
  seconds,
  secrets,
  secretUrl,
  secretWord,
  type Setting,
  share,
  url,
  wholeNumber
} from "./Setting.ts"
import { readSettingsFile } from "./SettingsFile.ts"
import { Environment, type UnknownSetting, unknownSettings } from "./UnknownSettings.ts"

/** The configuration is invalid. Lists every problem, each with its remedy. */
export class ConfigInvalid extends Data.TaggedError("ConfigInvalid")<{ readonly problems: ReadonlyArray<string> }> {
  override get message(): string {
    return this.problems.join("\n")
  }
}

/** PostgreSQL takes the locks of all shards in one row, which has at most 1,664 columns. */
const MAX_SHARDS = 1_600

/**
 * The greatest budget of messages for 24 hours. The time of every message that a budget counts takes 8 bytes in the
 * memory of a process, and about 20 in Redis.
 */
export const MAX_SENDS_PER_DAY = 100_000

/**
 * Every setting that Parley reads from the environment or a settings file, in the order of `--help`. `npm run docs`
 * generates docs/configuration.md and deploy/parley.env.sample from this list. A rate is the number of requests that are accepted in a sliding window.
 */
export const settings = {
  PORT: make(wholeNumber(0, 65535), 3000, "TCP port of the HTTP API and the WebSocket; 0 takes any free port"),
  HOST: make(anyText, "127.0.0.1", "network address on which the HTTP API and the WebSocket listen"),
  PUBLIC_URL: maybe(
    url("http:", "https:"),
    "base of the absolute URLs in the server's responses, such as those of uploads and avatars",
    "from HOST and PORT"
  ),
  DATA_DIR: make(anyText, "./data", "folder of a standalone server for its database, files and mail outbox"),
  DATABASE_URL: maybe(
    secretUrl("postgres:", "postgresql:"),
    "URL of the PostgreSQL database",
    "none: PGlite in DATA_DIR",
    true
  ),
  DATABASE_POOL: int(
    10,
    "connections to PostgreSQL for requests and jobs of this server; the server opens up to six more for the cluster and the readiness check",
    4,
    1000
  ),
  REDIS_URL: maybe(
    secretUrl("redis:", "rediss:"),
    "URL of the Redis server in which several servers together count rates and store presence",
    "none: each server counts alone",
    true
  ),
  REDIS_TIMEOUT_MS: int(
    50,
    "milliseconds that a request waits for Redis; afterwards the server decides by its own count",
    1,
    10_000
  ),
  S3_BUCKET: maybe(anyText, "name of the S3 bucket for attachments and avatars", "none: files in DATA_DIR"),
  S3_ENDPOINT: maybe(url("http:", "https:"), "URL of the S3 store as clients reach it", "Amazon S3"),
  S3_INTERNAL_ENDPOINT: maybe(url("http:", "https:"), "URL of the S3 store as the servers reach it", "S3_ENDPOINT"),
  S3_REGION: make(anyText, "us-east-1", "region of the S3 bucket"),
  S3_ACCESS_KEY_ID: maybe(anyText, "access key id of the S3 store", "the machine's AWS credentials"),
  S3_SECRET_ACCESS_KEY: maybe<Redacted.Redacted<string>>(
    (text) => Result.succeed(Redacted.make(text)),
    "secret access key of the S3 store",
    "the machine's AWS credentials",
    true
  ),
  S3_FORCE_PATH_STYLE: make(
    oneOf("on", "off"),
    "off",
    "on puts the name of the S3 bucket into the path of URLs instead of the host name"
  ),
  VACUUM_TABLE_MB: int(
    256,
    "megabytes that one vacuum of PGlite may read; a vacuum stops the server for up to 4 ms per megabyte; the server skips larger tables and names them in the log",
    1,
    1_000_000
  ),
  DATABASE_LANES: int(
    1,
    "batches of sends that a node commits to PostgreSQL at once; more than one helps only if the database has idle cores",
    1,
    16
  ),
  SMTP_URL: maybe(
    secretUrl("smtp:", "smtps:"),
    "URL of the mail server that sends one-time codes",
    "none: e-mails are files in MAIL_OUTBOX",
    true
  ),
  MAIL_FROM: make(anyText, "Parley <parley@localhost>", "sender address of e-mails"),
  MAIL_OUTBOX: maybe(
    anyText,
    "folder in which the server writes e-mails as .eml files when SMTP_URL is not set",
    "DATA_DIR/outbox"
  ),
  TRUST_PROXY: int(0, "number of proxies in front of the server whose X-Forwarded-For is trusted", 0, 16),
  TRUST_PROXY_ADDRESSES: maybe(
    networks,
    "addresses of the proxies in front of the server, to which HTTP_CONNECTIONS_PER_PEER does not apply",
    "loopback; while TRUST_PROXY is above 0, every address"
  ),
  CONSOLE_PROXY_PEOPLE: make(
    consolePeople,
    [],
    "operators whom a proxy may sign in to the console; the proxy sends the first name, in the header X-Parley-Person, and the audit log shows the second",
    { shown: "nobody" }
  ),
  CONSOLE_PROXY_ADDRESSES: make(
    networks,
    [],
    "addresses from which this proxy connects to the server",
    { shown: "none" }
  ),
  CONSOLE_PROXY_SECRET: maybe(
    longSecret,
    "secret that this proxy sends, in the header X-Parley-Proxy-Secret",
    "none",
    true
  ),
  ECHO_OWN: make(oneOf("on", "off"), "on", "on sends an agent's own messages to its own sockets too"),
  ALLOWED_ORIGINS: make(
    anyText,
    "*",
    "web origins whose pages may call the API: * for all, or a list separated by commas"
  ),
  REGISTRATION: make(
    oneOf("open", "invite", "closed"),
    "open",
    "registration of agents: for everybody (open), for those whom an operator has invited (invite), or for nobody (closed)"
  ),
  REGISTRATION_DOMAINS: make<ReadonlyArray<string>>(
    domains,
    [],
    "mail domains whose addresses may register; an invitation that names an address admits it whatever its domain",
    { shown: "none: any domain" }
  ),
  OAUTH: make(
    oneOf("on", "off"),
    "on",
    "on permits OAuth sign-in at /mcp; this needs a PUBLIC_URL that has no path and is https, or http on this machine"
  ),
  OAUTH_REDIRECT_SCHEMES: make<ReadonlyArray<string>>(
    schemes,
    ["cursor", "vscode", "vscode-insiders", "windsurf"],
    "schemes without a dot to which an OAuth sign-in may redirect, besides https and loopback addresses; the value none permits no such scheme"
  ),
  OAUTH_CIMD: make(
    oneOf("on", "known", "off"),
    "on",
    "client id metadata documents that the server fetches: all (on), those of hosts that the server knows (known), or none (off)"
  ),
  OAUTH_ACCESS_SECONDS: int(604_800, "seconds for which an OAuth access token is valid", 300, 1_728_000),
  OAUTH_REFRESH_DAYS: int(90, "days after which an unused OAuth refresh token expires", 1, 3_650),
  WEBHOOK_ALLOW_PRIVATE: make(oneOf("none", "loopback", "all"), "none", "private addresses to which webhooks may post"),
  WEBHOOK_TIMEOUT_SECONDS: int(10, "seconds within which a webhook's host must respond", 1, 60),
  WEBHOOK_RETRY_SECONDS: make<ReadonlyArray<number>>(
    seconds,
    [10, 30, 60, 300, 900, 3_600, 21_600, 86_400],
    "seconds from each failed attempt of a webhook delivery to the next attempt; if the last attempt fails, the delivery is dead"
  ),
  WEBHOOK_CIRCUIT_IN_A_ROW: int(5, "failed attempts in a row after which deliveries to a webhook pause", 1, 100_000),
  WEBHOOK_CIRCUIT_PER_MINUTE: int(
    10,
    "failed attempts per minute after which deliveries to a webhook pause",
    1,
    100_000
  ),
  WEBHOOK_CIRCUIT_PAUSE_SECONDS: int(300, "seconds for which deliveries to a failing webhook pause", 1, 86_400),
  WEBHOOK_DEAD_IN_A_ROW: int(50, "dead deliveries in a row after which a webhook is disabled", 1, 100_000),
  WEBHOOK_POSTS: int(64, "webhook deliveries that a server may have in progress at once", 1, 10_000),
  WEBHOOK_POSTS_PER_HOST: int(8, "webhook deliveries that may be in progress to one host at once", 1, 10_000),
  WEBHOOK_POSTS_PER_AGENT: int(
    8,
    "webhook deliveries that may be in progress for one agent at once, including those of its A2A push configurations",
    1,
    10_000
  ),
  RETENTION_MESSAGES_DAYS: maybe(
    wholeNumber(1, 36_500),
    "days for which the server keeps messages and their files",
    "for ever"
  ),
  RETENTION_CODES_HOURS: int(
    1,
    "hours for which the server keeps one-time codes after they were used or have expired",
    0,
    8_760
  ),
  RETENTION_WEBHOOKS_DELIVERED_HOURS: int(
    24,
    "hours for which the server keeps webhook deliveries that arrived",
    1,
    876_000
  ),
  RETENTION_WEBHOOKS_DEAD_HOURS: int(
    720,
    "hours for which the server keeps and lists dead webhook deliveries",
    1,
    876_000
  ),
  LOG_LEVEL: make(oneOf("debug", "info", "warn", "error"), "info", "least severe log lines to write"),
  PROBE_ADDRESSES: make<ReadonlyArray<string>>(
    networks,
    ["127.0.0.0/8", "::1"],
    "addresses whose requests for `/`, health, readiness and metrics do not count towards a rate limit, and which may read the metrics without METRICS_TOKEN",
    { shown: "127.0.0.0/8,::1" }
  ),
  METRICS_TOKEN: maybe(
    secretWord,
    "bearer token that /internal/metrics requires",
    "none: only PROBE_ADDRESSES may read the metrics",
    true
  ),
  OTEL_EXPORTER_OTLP_ENDPOINT: maybe(
    url("http:", "https:"),
    "URL of an OpenTelemetry collector that accepts traces over OTLP/HTTP as JSON; the server appends /v1/traces",
    "none: no traces"
  ),
  OTEL_EXPORTER_OTLP_HEADERS: maybe(otlpHeaders, "headers of each request to the collector", "none", true),
  OTEL_SERVICE_NAME: make(anyText, "parley", "name of this service at the collector"),
  OTEL_TRACES_SAMPLER: make(
    oneOf(
      "parentbased_always_on",
      "parentbased_always_off",
      "parentbased_traceidratio",
      "always_on",
      "always_off",
      "traceidratio"
    ),
    "parentbased_always_on",
    "which requests are traced; with parentbased_, a request with a traceparent is traced if its traceparent says so"
  ),
  OTEL_TRACES_SAMPLER_ARG: make(share, 1, "share of requests that traceidratio traces"),
  ROLE: make(
    oneOf("runner", "gateway"),
    "runner",
    "tasks of this cluster node: a runner owns shards and serves clients, a gateway only serves clients"
  ),
  RUNNER_HOST: make(
    anyText,
    "127.0.0.1",
    "address at which the other nodes reach this node; the node listens for other nodes on this address only"
  ),
  RUNNER_PORT: make(wholeNumber(1, 65535), 14431, "TCP port at which the other nodes reach this node"),
  RUNNER_SECRET: maybe(
    secrets,
    "secret with which nodes authenticate each other and encrypt their connections; while you change it, set both secrets as new,old",
    "none: any program that reaches RUNNER_PORT can act as a node",
    true
  ),
  RUNNER_CONNECTIONS: maybe(
    wholeNumber(1, 1_000_000),
    "connections that the other nodes may have open to RUNNER_PORT; one address may have at most half of them",
    "a sixteenth of ulimit -n, 32 or more"
  ),
  RUNNER_SHARDS: maybe(
    wholeNumber(1, MAX_SHARDS),
    "shards of a new cluster, of which each runner should get at least three; the first node stores the number in the database, and nodes with another number do not start",
    "those of the database, 300 in a new one"
  ),
  BACKUP_EVERY: maybe(
    wholeNumber(1, 8_760),
    "hours between two backups that a server with its database in DATA_DIR makes on its own",
    "no backups"
  ),
  BACKUP_TO: maybe(
    backupPlace,
    "where these backups are kept: a folder, or s3://BUCKET/PREFIX with the other S3_ settings"
  ),
  BACKUP_KEEP: int(7, "number of these backups that are kept; the server removes older ones", 1, 10_000),
  SHARED_DIR: maybe(anyText, "folder that all nodes share for attachments and avatars, instead of a bucket"),
  DRAIN_SECONDS: maybe(
    wholeNumber(0, 5),
    "seconds for which a stopping server still serves requests while /v1/ready already answers 503",
    "2 for a node, else 0"
  ),
  LIMITS_SENDS_PER_SECOND: int(60, "messages that an agent may send per second, direct and group together", 1),
  LIMITS_GROUP_SENDS_PER_SECOND: int(
    0,
    "messages that all members of a group together may send to the group per second; 0 means no limit"
  ),
  LIMITS_SENDS_PER_CONVERSATION_PER_DAY: int(
    0,
    "messages that an agent may send to one conversation within 24 hours; 0 means no limit",
    0,
    MAX_SENDS_PER_DAY
  ),
  LIMITS_SENDS_PER_DAY: int(
    0,
    "messages that an agent may send within 24 hours, direct and group together; 0 means no limit",
    0,
    MAX_SENDS_PER_DAY
  ),
  LIMITS_MCP_SENDS_PER_CONVERSATION_PER_DAY: int(
    500,
    "messages that an agent may send by /mcp to one conversation within 24 hours; 0 means no limit",
    0,
    MAX_SENDS_PER_DAY
  ),
  LIMITS_HOPS: int(
    20,
    "messages in a row that agents may cause each other to send (metadata.caused_by); 0 means no limit",
    0,
    10_000
  ),
  LIMITS_WARNING_PERCENT: int(
    80,
    "percent of LIMITS_SENDS_PER_SECOND at which the server warns an agent on its sockets",
    1,
    100
  ),
  LIMITS_WARNING_SECONDS: int(10, "minimum seconds between two warnings to an agent about its send rate", 1),
  LIMITS_COLD_CONVERSATIONS: int(
    100,
    "unanswered conversations that an agent may have begun within LIMITS_COLD_WINDOW_SECONDS",
    1
  ),
  LIMITS_COLD_WINDOW_SECONDS: int(
    86_400,
    "seconds for which an unanswered conversation counts towards LIMITS_COLD_CONVERSATIONS",
    1
  ),
  LIMITS_COLD_RETRY_SECONDS: int(
    3_600,
    "longest Retry-After, in seconds, of a COLD_CAP_EXCEEDED refusal; if the agent must wait longer, the refusal has no Retry-After"
  ),
  LIMITS_RESTRICT_BLOCKS: int(
    15,
    "blocks within LIMITS_RESTRICT_WINDOW_SECONDS at which an agent is restricted; only agents to which it wrote first count",
    1,
    100_000
  ),
  LIMITS_RESTRICT_WINDOW_SECONDS: int(86_400, "seconds for which a block counts towards LIMITS_RESTRICT_BLOCKS", 1),
  LIMITS_SUSPEND_BLOCKS: int(
    50,
    "blocks within LIMITS_SUSPEND_WINDOW_SECONDS at which an agent is suspended; only agents to which it wrote first count",
    1,
    100_000
  ),
  LIMITS_SUSPEND_REPORTS: int(
    10,
    "reports within LIMITS_SUSPEND_WINDOW_SECONDS at which an agent is suspended; only agents to which it wrote first count",
    1,
    100_000
  ),
  LIMITS_SUSPEND_WINDOW_SECONDS: int(604_800, "seconds for which a block or a report counts towards a suspension", 1),
  LIMITS_BACKLOG_SOFT: int(5_000, "undelivered messages of a recipient at which the server warns its senders", 1),
  LIMITS_BACKLOG_HARD: int(
    10_000,
    "undelivered messages of a recipient at which the server refuses direct sends to it",
    1
  ),
  LIMITS_REGISTER_PER_HOUR: int(5, "registrations that an IP address may begin per hour", 1),
  LIMITS_REGISTER_VERIFY_PER_10_MINUTES: int(10, "registration codes that an IP address may try per 10 minutes", 1),
  LIMITS_RECOVER_PER_HOUR: int(3, "account recoveries that an IP address may begin per hour", 1),
  LIMITS_RECOVER_VERIFY_PER_10_MINUTES: int(10, "recovery codes that an IP address may try per 10 minutes", 1),
  LIMITS_ROTATE_PER_HOUR: int(3, "key rotations that an IP address may begin per hour", 1),
  LIMITS_ROTATE_VERIFY_PER_10_MINUTES: int(10, "key rotation codes that an IP address may try per 10 minutes", 1),
  LIMITS_SIGN_IN_PER_HOUR: int(3, "codes for OAuth sign-in that an IP address may request per hour", 1),
  LIMITS_SIGN_IN_VERIFY_PER_10_MINUTES: int(
    10,
    "codes for OAuth sign-in that an IP address may try per 10 minutes",
    1
  ),
  LIMITS_OAUTH_AUTHORIZE_PER_10_MINUTES: int(60, "OAuth sign-ins that an IP address may begin per 10 minutes", 1),
  LIMITS_OAUTH_KEYS_PER_10_MINUTES: int(
    10,
    "API keys that an IP address may try on the sign-in page per 10 minutes",
    1
  ),
  LIMITS_OAUTH_REGISTRATIONS_PER_HOUR: int(300, "OAuth clients that an IP address may register per hour", 1),
  LIMITS_OAUTH_TOKENS_PER_MINUTE: int(
    1_200,
    "OAuth requests for tokens, revocations and metadata that an IP address may make per minute",
    1
  ),
  LIMITS_OAUTH_DOCUMENTS_PER_10_MINUTES: int(
    30,
    "client id metadata documents that the server fetches for an IP address per 10 minutes",
    1
  ),
  LIMITS_CARDS_PER_MINUTE: int(300, "public cards that an agent may read per minute", 1),
  LIMITS_CONVERSATION_LISTS_PER_MINUTE: int(1_200, "conversation lists that an agent may read per minute", 1),
  LIMITS_CONTACT_LISTS_PER_MINUTE: int(1_200, "contact lists that an agent may read per minute", 1),
  LIMITS_CONTACT_CHECKS_PER_MINUTE: int(1_200, "single contacts that an agent may look up per minute", 1),
  LIMITS_DIRECTORY_PER_MINUTE: int(60, "directory searches that an agent may make per minute", 1),
  LIMITS_DIRECTORY_PER_DAY: int(1_000, "directory searches that an agent may make in 24 hours", 1),
  LIMITS_ANONYMOUS_DIRECTORY_PER_MINUTE: int(
    30,
    "directory searches without an API key that an IP address may make per minute",
    1
  ),
  LIMITS_SEARCHES_PER_MINUTE: int(30, "searches for messages that an agent may make per minute", 1),
  LIMITS_MUTE_WRITES_PER_SECOND: int(10, "mutes that an agent may set or lift per second", 1),
  LIMITS_MUTES_PER_AGENT: int(10_000, "mutes that an agent may have at once", 1),
  LIMITS_REACTIONS_PER_MINUTE: int(60, "reactions that an agent may give or take back per minute", 1),
  LIMITS_REPLY_CALLS_PER_MINUTE: int(1_200, "calls of reply coordination that an agent may make per minute", 1),
  LIMITS_WEBHOOKS_PER_AGENT: int(5, "webhooks that an agent may have at once", 1, 100),
  LIMITS_PUSH_CONFIGS_PER_TASK: int(10, "push notification configurations that an A2A task may have", 1, 100),
  LIMITS_PUSH_CONFIGS_PER_AGENT: int(
    200,
    "push notification configurations that an agent may have; after a task has ended, its configurations count until their last posts are done",
    1,
    10_000
  ),
  LIMITS_GROUP_MEMBERS: int(256, "active members that a group may have", 1),
  LIMITS_GROUP_INVITES_PER_DAY: int(500, "group invites that an agent may send in 24 hours", 1),
  LIMITS_GROUP_REFUSAL_SECONDS: int(
    86_400,
    "seconds for which a group cannot invite an agent again after the agent has refused an invite",
    1
  ),
  LIMITS_AVATAR_WRITES_PER_MINUTE: int(5, "avatars that an agent may set or remove per minute", 1),
  LIMITS_BODY_BYTES: int(
    1_048_576,
    "bytes that a request's body may have; uploads of files and pictures have other limits",
    1_024,
    16_777_216
  ),
  LIMITS_MESSAGE_BYTES: int(32_768, "bytes that a message's content and metadata may have as JSON", 1, 262_144),
  LIMITS_ATTACHMENT_BYTES: int(26_214_400, "maximum size of an attachment, in bytes", 1, 26_214_400),
  LIMITS_AVATAR_BYTES: int(5_242_880, "maximum size of a picture uploaded as an avatar, in bytes", 1, 5_242_880),
  LIMITS_AVATAR_PIXELS: int(
    24_000_000,
    "pixels (width times height) that a picture uploaded as an avatar may have",
    1,
    268_402_689
  ),
  LIMITS_AVATAR_SIDE: int(128, "minimum width and height, in pixels, of a picture uploaded as an avatar", 1, 512),
  LIMITS_STORAGE_PER_AGENT: int(
    1_073_741_824,
    "bytes that the attachments of an agent may have in all, those reserved for uploads included",
    1
  ),
  LIMITS_REQUESTS_PER_MINUTE: int(12_000, "requests of every kind that an agent may make per minute", 1),
  LIMITS_ANONYMOUS_REQUESTS_PER_MINUTE: int(
    1_200,
    "requests without an API key that an IP address may make per minute",
    1
  ),
  LIMITS_ASSETS_PER_MINUTE: int(12_000, "files of the server's own pages that an IP address may load per minute", 1),
  LIMITS_OTP_TTL_SECONDS: int(600, "seconds for which a one-time code is valid", 1),
  LIMITS_OTP_ATTEMPTS: int(5, "wrong attempts after which a pending id of a one-time code becomes invalid", 1),
  LIMITS_OTP_ATTEMPTS_PER_CODE: int(
    20,
    "wrong attempts, over all its pending ids, after which a one-time code becomes invalid",
    1
  ),
  LIMITS_OTP_COOLDOWN_SECONDS: int(
    60,
    "seconds between two one-time codes to the same e-mail address for the same purpose"
  ),
  LIMITS_OTP_PER_HOUR: int(20, "one-time codes to the same e-mail address for the same purpose per hour", 1),
  LIMITS_OTP_ANSWER_MS: int(
    50,
    "milliseconds; the server responds to a registration or recovery at a multiple of this time after the request, so that the response time does not reveal whether the e-mail address has an account; with 0 it responds at once",
    0,
    10_000
  ),
  LIMITS_REGISTRATIONS_PER_EMAIL: int(3, "accounts that an e-mail address may ever have had, deleted ones included", 1),
  LIMITS_SOCKETS_PER_AGENT: int(20, "WebSockets that an agent may have open, on all nodes together", 1),
  LIMITS_FRAMES_PER_SECOND: int(
    100,
    "frames that a client may send on one WebSocket per second, not counting acknowledgements",
    1
  ),
  LIMITS_REFUSALS_PER_SECOND: int(
    200,
    "refused frames per second above which the server reads a WebSocket more slowly; if the client continues, the server closes the WebSocket",
    1
  ),
  SOCKETS_HELLO_SECONDS: int(5, "seconds within which a new WebSocket must authenticate", 1, 60),
  SOCKETS_FRAME_BYTES: int(65_536, "bytes that a client's frame on a WebSocket may have", 1_024, 16_777_216),
  SOCKETS_BACKLOG_BYTES: int(
    1_048_576,
    "unsent bytes on a WebSocket at which the sending of its backlog pauses",
    1_024
  ),
  SOCKETS_UNSENT_BYTES: int(4_194_304, "unsent bytes on a WebSocket at which the server closes it", 1_024),
  SOCKETS_PING_SECONDS: int(30, "seconds from one ping of a WebSocket to the next", 1, 3_600),
  SOCKETS_PONG_SECONDS: int(10, "seconds within which a client must respond to a ping on its WebSocket", 1, 3_600),
  PRESENCE_LIFETIME_SECONDS: int(
    300,
    "seconds after an agent's last sign of life at which it counts as offline",
    60,
    86_400
  ),
  HTTP_CONNECTIONS: maybe(
    wholeNumber(1, 10_000_000),
    "connections that clients may have open, WebSockets included",
    "ulimit -n less what the server needs for itself"
  ),
  HTTP_CONNECTIONS_RESERVE: maybe(
    wholeNumber(0, 10_000_000),
    "file descriptors that the server keeps for itself if HTTP_CONNECTIONS is not set; those for other nodes are not included",
    "the sum of 100, WEBHOOK_POSTS, HTTP_FILES for a folder, and DATABASE_POOL or 500 for PGlite"
  ),
  HTTP_CONNECTIONS_PER_PEER: maybe(
    wholeNumber(1, 10_000_000),
    "connections that one IP address, or one /64 network of IPv6, may have open",
    "a quarter of HTTP_CONNECTIONS"
  ),
  HTTP_FIRST_BYTE_SECONDS: int(
    10,
    "seconds within which a client must send the first byte on a new connection",
    1,
    3_600
  ),
  HTTP_HEADERS_SECONDS: int(10, "seconds within which the headers of an HTTP request must arrive", 1, 3_600),
  HTTP_REQUEST_SECONDS: int(120, "seconds within which a whole HTTP request must arrive, uploads included", 1, 3_600),
  HTTP_STALLED_SECONDS: int(
    60,
    "seconds after which the server closes the connection of a client that does not read its HTTP response",
    1,
    3_600
  ),
  HTTP_LARGE_READS: int(
    4,
    "large responses, such as lists of messages, that an agent may have in progress on a server; a response counts until the client has read it",
    1,
    10_000
  ),
  HTTP_FILES: int(
    128,
    "files that clients may upload and download at once, on a server whose file store is a folder; further requests wait",
    1,
    100_000
  ),
  HTTP_FILES_PER_ADDRESS: int(16, "files that one IP address may upload and download at once", 1, 10_000),
  HTTP_LARGE_READS_WAITING: int(
    256,
    "requests for large responses that may wait for a slot of one agent or address; the server refuses further requests",
    1,
    100_000
  ),
  HTTP_LARGE_READS_SECONDS: int(
    10,
    "seconds that a request for a large response waits for a slot before the server refuses the request",
    1,
    60
  ),
  HTTP_READING_BYTES: int(
    67_108_864,
    "bytes of large responses that a server may read from its database at once; further requests wait",
    1_048_576
  ),
  HELD_CONNECTION_BYTES: int(
    33_554_432,
    "unsent and incomplete bytes that one connection may make a server hold in memory",
    1_048_576
  ),
  HELD_PEER_BYTES: int(
    67_108_864,
    "unsent and incomplete bytes that all connections of one agent, or of one IP address without a key, may make a server hold in memory",
    1_048_576
  ),
  HELD_BYTES: int(
    134_217_728,
    "unsent and incomplete bytes that all connections may make a server hold in memory",
    1_048_576
  ),
  IDEMPOTENCY_DEADLINE_SECONDS: int(
    30,
    "seconds within which the server must respond to a request with an Idempotency-Key; keep this below HTTP_STALLED_SECONDS",
    1,
    55
  ),
  IDEMPOTENCY_RETENTION_HOURS: int(
    24,
    "hours for which the server keeps the response to a request with an Idempotency-Key",
    1,
    876_000
  ),
  UPLOADS_URL_SECONDS: int(900, "seconds for which the signed URL to upload a file is valid", 1, 604_800),
  DOWNLOADS_URL_SECONDS: int(300, "seconds for which the signed URL to download a file is valid", 1, 604_800),
  UPLOADS_RETENTION_HOURS: int(24, "hours for which the server keeps an uploaded file that no message uses", 1, 876_000)
} satisfies Record<string, Setting<unknown>>

export type Settings = { readonly [K in keyof typeof settings]: (typeof settings)[K]["fallback"] }

/** Settings that are each valid alone but conflict with each other. */
interface Disagreement {
  readonly names: ReadonlyArray<keyof Settings>
  readonly holds: boolean
  readonly problem: string
}

const disagreements = (config: Settings): ReadonlyArray<Disagreement> => {
  const signOfLife = config.SOCKETS_PING_SECONDS + config.SOCKETS_PONG_SECONDS
  return [
    {
      names: ["HTTP_HEADERS_SECONDS", "HTTP_REQUEST_SECONDS"],
      holds: config.HTTP_HEADERS_SECONDS > config.HTTP_REQUEST_SECONDS,
      problem:
        `must be at most HTTP_REQUEST_SECONDS, ${config.HTTP_REQUEST_SECONDS}, because the headers are a part of the request`
    },
    {
      names: ["S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"],
      holds: (config.S3_ACCESS_KEY_ID === undefined) !== (config.S3_SECRET_ACCESS_KEY === undefined),
      problem: "set it together with S3_SECRET_ACCESS_KEY, or set neither to use the machine's AWS credentials"
    },
    {
      names: ["BACKUP_EVERY", "DATABASE_URL"],
      holds: config.BACKUP_EVERY !== undefined && config.DATABASE_URL !== undefined,
      problem:
        "is for a server with its database in DATA_DIR. Back up PostgreSQL with its own tools (docs/operations.md)"
    },
    {
      names: ["BACKUP_EVERY", "BACKUP_TO"],
      holds: config.BACKUP_EVERY !== undefined && config.BACKUP_TO === undefined,
      problem: "set it together with BACKUP_TO, the folder or bucket of the backups, best on another machine"
    },
    {
      names: ["SOCKETS_BACKLOG_BYTES", "SOCKETS_UNSENT_BYTES"],
      holds: config.SOCKETS_BACKLOG_BYTES >= config.SOCKETS_UNSENT_BYTES,
      problem:
        `must be less than SOCKETS_UNSENT_BYTES, ${config.SOCKETS_UNSENT_BYTES}, because otherwise a backlog would close its WebSocket`
    },
    {
      names: ["HELD_CONNECTION_BYTES", "HELD_PEER_BYTES"],
      holds: config.HELD_CONNECTION_BYTES > config.HELD_PEER_BYTES,
      problem:
        `must be at most HELD_PEER_BYTES, ${config.HELD_PEER_BYTES}, because a connection counts for its peer too`
    },
    {
      names: ["HELD_PEER_BYTES", "HELD_BYTES"],
      holds: config.HELD_PEER_BYTES > config.HELD_BYTES,
      problem: `must be at most HELD_BYTES, ${config.HELD_BYTES}, because the bytes of a peer count for the server too`
    },
    {
      names: ["CONSOLE_PROXY_PEOPLE", "CONSOLE_PROXY_ADDRESSES", "CONSOLE_PROXY_SECRET", "PUBLIC_URL"],
      holds: config.CONSOLE_PROXY_PEOPLE.length > 0 &&
        (config.CONSOLE_PROXY_ADDRESSES.length === 0 || config.CONSOLE_PROXY_SECRET === undefined ||
          config.PUBLIC_URL === undefined),
      problem:
        "set it together with CONSOLE_PROXY_ADDRESSES, CONSOLE_PROXY_SECRET and PUBLIC_URL; otherwise nobody can sign in"
    },
    {
      names: ["PRESENCE_LIFETIME_SECONDS", "SOCKETS_PING_SECONDS", "SOCKETS_PONG_SECONDS"],
      holds: config.PRESENCE_LIFETIME_SECONDS <= signOfLife,
      problem:
        `must be more than SOCKETS_PING_SECONDS and SOCKETS_PONG_SECONDS together, ${signOfLife}, because otherwise agents with WebSockets would go offline between two pings`
    }
  ]
}

/**
 * Whether an unknown setting stops the start. A misspelled limit does, and a misspelled setting of who may sign in,
 * because otherwise nobody would notice in time that it is not in force.
 */
const stops = ({ name }: UnknownSetting): boolean => /^(?:LIMITS|CONSOLE)_/.test(name)

/** Where each setting that is set comes from: `environment`, or a file with the line. */
type Sources = ReadonlyMap<string, string>

const ENVIRONMENT = "environment"

interface Read {
  readonly values: Settings
  readonly origins: Sources
  readonly problems: ReadonlyArray<string>
  readonly warnings: ReadonlyArray<string>
}

/** Reads all settings. Each problem and warning about a line of the settings file begins with the file and the line. */
const read: Effect.Effect<Read> = Effect.map(Environment, (environment) => {
  const file = readSettingsFile(environment)
  const problems = [...file.problems]
  const warnings: Array<string> = []
  const values: Record<string, unknown> = {}
  const origins = new Map<string, string>()
  const invalid = new Set<string>()
  const located = (name: string, problem: string): string => {
    const origin = origins.get(name)
    return `${origin === undefined || origin === ENVIRONMENT ? "" : `${origin}: `}${name}${problem}`
  }
  const all = Object.entries(settings) as ReadonlyArray<[string, Setting<unknown>]>
  for (const [name, setting] of all) {
    values[name] = setting.fallback
    const assigned = file.assigned.get(name)
    const own = environment[name]?.trim() ?? ""
    const text = own === "" ? assigned?.value.trim() ?? "" : own
    if (text === "") continue
    origins.set(name, own === "" && assigned !== undefined ? file.at(assigned.line) : ENVIRONMENT)
    const parsed = setting.parse(text)
    if (Result.isSuccess(parsed)) values[name] = parsed.success
    else {
      invalid.add(name)
      problems.push(located(name, `: ${parsed.failure}${setting.secret ? "" : `, got ${JSON.stringify(text)}`}`))
    }
  }
  const config = values as Settings
  for (const { holds, names, problem } of disagreements(config)) {
    if (holds && !names.some((name) => invalid.has(name))) problems.push(located(names[0]!, `: ${problem}`))
  }
  const add = (variables: Readonly<Record<string, string | undefined>>, where: (name: string) => string): void => {
    for (const unknown of unknownSettings(variables, Object.keys(settings))) {
      const { name, nearest } = unknown
      if (stops(unknown))
        problems.push(`${where(name)}${name}: no setting has this name; the most similar name is ${nearest}`)
      else {
        warnings.push(
          `${where(name)}${name} is set, but Parley has no such setting; the most similar name is ${nearest}`
        )
      }
    }
  }
  add(environment, () => "")
  const lineOf = (name: string): string => `${file.at(file.assigned.get(name)?.line ?? 0)}: `
  add(Object.fromEntries([...file.assigned].map(([name, { value }]) => [name, value])), lineOf)
  const secrets = all.filter(([name, { secret }]) => secret && file.assigned.has(name)).map(([name]) => name)
  if (file.openTo !== undefined && secrets.length > 0) {
    warnings.push(
      `All users of this machine can read ${file.openTo}, which sets ${secrets.join(", ")}: run chmod o-r on it`
    )
  }
  return { values: config, origins, problems, warnings }
})

/** The effective configuration. It is validated as a whole before anything starts. */
export class Config extends Context.Service<Config, Settings>()("parley/platform/Config") {
  /** Reads every setting from the environment and the settings file. It fails with all problems at once. */
  static readonly load = Effect.flatMap(
    read,
    ({ problems, values }) =>
      problems.length > 0 ? Effect.fail(new ConfigInvalid({ problems })) : Effect.succeed(Config.of(values))
  )

  /** The settings that are valid, the defaults in place of the others, and all problems. */
  static readonly tried = Effect.map(read, ({ problems, values }) => ({ problems, values }))

  static readonly layer = Layer.effect(Config, Config.load)

  /** Warnings about names that look like misspelled settings, and about a file with secrets that everybody can read. */
  static readonly warnings = Effect.map(read, ({ warnings }) => warnings)

  /** The environment, with the settings of the file that the environment does not set, for programs that this starts. */
  static readonly environment = Effect.map(Environment, (environment) => {
    const own = Object.entries(environment).filter(([, value]) => value !== undefined && value.trim() !== "")
    const assigned = [...readSettingsFile(environment).assigned].filter(([name]) => Object.hasOwn(settings, name))
    return Object.fromEntries([...assigned.map(([name, { value }]) => [name, value] as const), ...own])
  })

  /** Where the settings that are set come from. */
  static readonly origins = Effect.map(read, ({ origins }) => origins)

  /** The default settings with these changes, for tests. */
  static readonly layerTest = (changes: Partial<Settings> = {}) =>
    Layer.sync(Config, () => {
      const defaults = Object.fromEntries(Object.entries(settings).map(([name, s]) => [name, s.fallback]))
      return Config.of({ ...defaults, ...changes } as Settings)
    })
}

/** Where the settings of this process came from when it read them. */
export class Origins extends Context.Reference<Sources>("parley/platform/Origins", {
  defaultValue: () => new Map<string, string>()
}) {}

/** One setting with its effective value. The texts are those of docs/configuration.md. */
export interface EffectiveSetting {
  readonly name: string
  /** The value. For a secret, only whether it is set. */
  readonly value: string
  readonly isDefault: boolean
  /** `default`, `environment`, or a file with the line. */
  readonly origin: string
  readonly about: string
}

/** Returns every setting with its effective value, in the order of `settings`. Secrets are redacted. */
export const effective = (config: Settings, origins: Sources): ReadonlyArray<EffectiveSetting> =>
  (Object.entries(settings) as ReadonlyArray<[keyof Settings, Setting<unknown>]>).map(
    ([name, { about, fallback, secret, shown }]) => {
      const value = config[name]
      const isDefault = value === fallback || String(value) === "" && String(fallback) === ""
      const instead = name === "S3_BUCKET" && config.SHARED_DIR !== undefined ? "none: files in SHARED_DIR" : shown
      const text = isDefault
        ? instead
        : secret
        ? "(set, not shown)"
        // A URL may contain a user and a password.
        : String(value).replace(/\/\/[^/@\s]*@/g, "//****@")
      return { name, value: text, isDefault, origin: origins.get(name) ?? "default", about }
    }
  )
