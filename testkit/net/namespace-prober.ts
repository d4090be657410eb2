/** The caller's side of prober.ts: a client in a namespace as an object. */
import { HelperThread } from "./helper-thread.ts";
import type { ConnectRequest, ProbeAnswer, ProbeReply, ProbeRequest } from "./messages.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

const PROGRAM = new URL("prober.ts", import.meta.url);

/** A running client. Requests run concurrently. */
export interface Prober {
  /** Makes `count` requests and resolves with the outcome of each; refusals and silence are answers, not rejections. */
  connect(request: Omit<ConnectRequest, "id" | "kind">): Promise<readonly ProbeAnswer[]>;
  /** Fetches a URL from inside the namespace. `status` 0 means no HTTP answer, and `body` says why. */
  fetch(url: string, timeoutMs?: number): Promise<{ readonly status: number; readonly body: string }>;
  close(): void;
}

/** Starts a client in a namespace. @param cgroup a threaded one for its sockets. */
export function startProber(namespace: NetworkNamespace, cgroup?: string): Prober {
  const helper = new HelperThread<ProbeRequest, ProbeReply>(namespace, PROGRAM, "", cgroup);
  return {
    async connect(request) {
      const reply = await helper.ask({ ...request, kind: "connect" });
      if (reply.kind !== "connect") throw new TypeError(`asked to connect, answered ${reply.kind}`);
      return reply.answers;
    },
    async fetch(url, timeoutMs = 2000) {
      const reply = await helper.ask({ kind: "fetch", url, timeoutMs });
      if (reply.kind !== "fetch") throw new TypeError(`asked to fetch, answered ${reply.kind}`);
      return reply;
    },
    close: () => helper.close(),
  };
}
