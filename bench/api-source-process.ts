/** The API server as a source and nothing behind it, started with `fork`: for what the source alone costs. */

import { systemClock } from "../src/async/clock.ts";
import { createApiSource } from "../src/cluster/apiserver/api-source.ts";
import { createApiClient } from "../src/cluster/apiserver/connection/api-client.ts";
import { UNSAID } from "../src/cluster/apiserver/connection/client-config.ts";
import { silentLogger } from "../src/logging/logger.ts";

export interface SourceTask {
  readonly url: string;
  readonly ca: string;
  readonly takesProtobuf: boolean;
}

export type SourceReport = { readonly synced: true } | { readonly events: number };

const { url, ca, takesProtobuf }: SourceTask = JSON.parse(process.argv[2] ?? "{}");
const common = { clock: systemClock, log: silentLogger };
const client = createApiClient({
  ...common,
  config: {
    ...UNSAID,
    server: new URL(url),
    ca: { kind: "data", text: ca },
  },
  qps: -1,
  burst: 0,
  version: "v1.37.0",
  product: "kube-proxy-ts/1.2.3 (abc)",
});
let events = 0;
let synced = 0;
const say = (report: SourceReport): void => void process.send?.(report);
const stop = new AbortController();
process.on("disconnect", () => stop.abort());
// Asked with any message.
process.on("message", () => say({ events }));
const transport = client.newTransport();
await createApiSource({ ...common, transport, takesProtobuf, nodeName: "node-a", resyncPeriodMs: 0 }).run(
  {
    onEvent() {
      events++;
    },
    onSynced() {
      if (++synced === 4) say({ synced: true });
    },
  },
  stop.signal,
);
