/** The API server as the cluster. */

export { type ApiSourceOptions, createApiSource } from "./api-source.ts";
export { type ApiClient, type ApiClientOptions, createApiClient } from "./connection/api-client.ts";
export { ApiError } from "./connection/api-error.ts";
export { type ClientConfig, ClientConfigError } from "./connection/client-config.ts";
export { loadClientConfig } from "./connection/load-client-config.ts";
export { createRestMetrics } from "./connection/rest-metrics.ts";
export type { RestObserver } from "./connection/transport.ts";
export type { EventFacts, EventSubject } from "./events/event-object.ts";
export { createEventRecorder } from "./events/events.ts";
export { readCluster } from "./read-cluster.ts";
export { createLastHeard } from "./watch/last-heard.ts";
export { WATCHED_PLURALS } from "./watch/resources.ts";
