/** The caller's side of backend.ts: a pod's server as an object. */
import { HelperThread } from "./helper-thread.ts";
import type { BackendReply, BackendRequest, ListenSpec } from "./messages.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

const PROGRAM = new URL("backend.ts", import.meta.url);

/** A running server of one pod. */
export interface Backend {
  readonly pod: string;
  /** Listens on exactly these sockets from the moment the promise resolves. Rejects naming those that cannot be had. */
  listen(specs: readonly ListenSpec[]): Promise<void>;
  /** Ends the server. */
  close(): void;
}

/** Starts a pod's server in its namespace; it listens on nothing until told. */
export function startBackend(namespace: NetworkNamespace, pod: string): Backend {
  const helper = new HelperThread<BackendRequest, BackendReply>(namespace, PROGRAM, pod);
  return {
    pod,
    async listen(specs) {
      const { failed } = await helper.ask({ listen: specs });
      if (failed.length > 0) throw new Error(`pod ${pod} cannot listen: ${failed.join("; ")}`);
    },
    close: () => helper.close(),
  };
}
