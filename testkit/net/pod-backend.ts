/** The caller's side of backend.ts: a pod's server as an object. */
import { HelperThread } from "./helper-thread.ts";
import type { BackendReply, BackendRequest, ListenSpec } from "./messages.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

const PROGRAM = new URL("backend.ts", import.meta.url);

type Thread = HelperThread<BackendRequest, BackendReply>;

/** One for all backends of this process: a thread costs 60 ms of processor time, and a topology has a dozen pods. */
let thread: Thread | undefined;
/** The running ones. */
const running = new Set<number>();
let lastNumber = 0;

async function end(backend: number): Promise<void> {
  running.delete(backend);
  if (running.size > 0) return;
  const idle = thread;
  thread = undefined;
  await idle?.end();
}

/** A running server of one pod. */
export interface Backend {
  readonly pod: string;
  /** Listens on exactly these sockets once the promise resolves. Rejects naming those that cannot be opened. */
  listen(specs: readonly ListenSpec[]): Promise<void>;
  /** Ends the server and its connections. */
  close(): Promise<void>;
}

/** Starts a pod's server in its namespace; it listens on nothing until told to. */
export function startBackend(namespace: NetworkNamespace, pod: string): Backend {
  lastNumber += 1;
  const backend = lastNumber;
  running.add(backend);
  thread ??= new HelperThread(undefined, PROGRAM);
  const own = thread;
  const ask = (listen: readonly ListenSpec[], hasEnded = false) =>
    own.ask({ backend, pod, namespace: namespace.path, listen, hasEnded });
  const close = async () => {
    if (!running.has(backend)) return;
    // A thread that has ended by itself has closed everything.
    await ask([], true).catch(() => {});
    await end(backend);
  };
  const leave = namespace.onRemove(close);
  return {
    pod,
    async listen(specs) {
      if (!running.has(backend)) throw new Error(`pod ${pod}: its server has ended`);
      const { failed } = await ask(specs);
      if (failed.length > 0) throw new Error(`pod ${pod} cannot listen: ${failed.join("; ")}`);
    },
    async close() {
      leave();
      await close();
    },
  };
}
