/**
 * A helper that lives in a network namespace, as a thread of this process: a namespace belongs to a thread, and a
 * thread starts ten times as fast as a process. Requests and replies are objects.
 */
import { basename } from "node:path";
import { Worker } from "node:worker_threads";
import { inNetworkNamespace } from "../../src/kernel/network-namespace.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

/** Common to all requests and replies; replies may come in any order. */
export interface Numbered {
  readonly id: number;
}

/** For each kind of request in a union. */
type WithoutId<Request> = Request extends Numbered ? Omit<Request, "id"> : never;

interface Waiting<Reply> {
  readonly resolve: (reply: Reply) => void;
  readonly reject: (error: Error) => void;
}

/** What the thread is started with. */
export interface HelperData {
  readonly argument: string;
  /** The threaded cgroup to be in. */
  readonly cgroup: string | undefined;
}

/** One request → one reply. Ends when {@link HelperThread.close} is called or its namespace is removed. */
export class HelperThread<Request extends Numbered, Reply extends Numbered> {
  readonly #worker: Worker;
  readonly #title: string;
  readonly #waiting = new Map<number, Waiting<Reply>>();
  readonly #leave: () => void;
  #nextId = 1;
  #ended: Error | undefined;

  /**
   * @param namespace undefined: this thread's. @param program the thread's code, which calls `serveRequests` (helper-side.ts).
   * @param argument for the program.
   */
  constructor(namespace: NetworkNamespace | undefined, program: URL, argument = "", cgroup?: string) {
    this.#title = `${basename(program.pathname, ".ts")} in ${namespace?.name ?? "all namespaces"}`;
    const workerData: HelperData = { argument, cgroup };
    const start = () =>
      new Worker(program, {
        workerData,
        // The C library also opens and closes sockets.
        trackUnmanagedFds: false,
        // This process may have been started with its program as text.
        execArgv: [],
      });
    // A thread starts in the namespace of the thread that creates it.
    this.#worker = namespace === undefined ? start() : inNetworkNamespace(namespace.path, start);
    this.#worker.on("message", (reply: Reply) => this.#receive(reply));
    this.#worker.on("error", (error) => this.#end(error instanceof Error ? error.message : String(error)));
    this.#worker.on("exit", (status) => this.#end(`ended with status ${status}`));
    this.#leave = namespace?.onRemove(() => this.#terminate()) ?? (() => {});
  }

  /** Sends a request. Rejects if the thread has ended or ends meanwhile. */
  ask(request: WithoutId<Request>): Promise<Reply> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#worker.postMessage({ ...request, id });
    });
  }

  /** Ends the thread, and with it its sockets. */
  close(): void {
    void this.end();
  }

  /** Like {@link HelperThread.close}. Resolves when it has ended. */
  async end(): Promise<void> {
    this.#leave();
    await this.#terminate();
  }

  async #terminate(): Promise<void> {
    await this.#worker.terminate();
  }

  #receive(reply: Reply): void {
    const waiting = this.#waiting.get(reply.id);
    this.#waiting.delete(reply.id);
    waiting?.resolve(reply);
  }

  #end(reason: string): void {
    this.#ended ??= new Error(`${this.#title}: ${reason}`);
    for (const waiting of this.#waiting.values()) waiting.reject(this.#ended);
    this.#waiting.clear();
  }
}
