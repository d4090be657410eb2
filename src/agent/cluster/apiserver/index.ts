/** The public interface of the API server client. */

export { createApiSource, createLastHeard } from "./api-source.ts";
export { createApiClient } from "./connection/api-client.ts";
export { ApiError } from "./connection/api-error.ts";
export { ClientConfigError } from "./connection/client-config.ts";
export { loadClientConfig } from "./connection/load-client-config.ts";
export { createRestMetrics } from "./connection/rest-metrics.ts";
export { EventRecorder } from "./events/events.ts";
export { prefersProtobuf } from "./formats/body-format.ts";
export { readCluster } from "./read-cluster.ts";
export { removeStartupTaint } from "./startup-taint.ts";
export { WATCHED_PLURALS } from "./watch/resources.ts";
