/** The demo's side of prober.ts: a client in a namespace as an object. */
import { LineProcess } from "./line-process.ts";
import type { ConnectReply, ConnectRequest, FetchReply, ProbeAnswer } from "./messages.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

/** A running client. Requests run side by side. */
export interface Prober {
  /** Makes `count` requests and resolves with what each got; refusals and silence are answers, not rejections. */
  connect(request: Omit<ConnectRequest, "id" | "kind">): Promise<readonly ProbeAnswer[]>;
  /** Fetches a URL from inside the namespace. `status` 0 means no HTTP answer, `body` then says why. */
  fetch(url: string, timeoutMs?: number): Promise<{ readonly status: number; readonly body: string }>;
  close(): void;
}

/** Starts a client in a namespace. */
export function startProber(namespace: NetworkNamespace): Prober {
  const helper = new LineProcess(namespace, "prober");
  return {
    async connect(request) {
      return (JSON.parse(await helper.ask({ ...request, kind: "connect" })) as ConnectReply).answers;
    },
    async fetch(url, timeoutMs = 2000) {
      return JSON.parse(await helper.ask({ kind: "fetch", url, timeoutMs })) as FetchReply;
    },
    close: () => helper.close(),
  };
}
