/** The API server as the cluster. */
export { type ApiClientOptions, type ApiSourceOptions, createApiSource, createTransport } from "./api-source.ts";
export { type ClientConfig, ClientConfigError } from "./client-config.ts";
export { loadClientConfig } from "./load-client-config.ts";
export type { RestObserver } from "./transport.ts";
