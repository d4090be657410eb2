/** The API server as the cluster. */
export { type ApiClient, type ApiClientOptions, createApiClient } from "./api-client.ts";
export { type ApiSourceOptions, createApiSource } from "./api-source.ts";
export { type ClientConfig, ClientConfigError } from "./client-config.ts";
export type { EventFacts, EventSubject } from "./event-object.ts";
export { createEventRecorder } from "./events.ts";
export { createLastHeard } from "./last-heard.ts";
export { loadClientConfig } from "./load-client-config.ts";
export { WATCHED_PLURALS } from "./resources.ts";
export { createRestMetrics } from "./rest-metrics.ts";
export type { RestObserver } from "./transport.ts";
