/** A helper process in a namespace that is asked in JSON lines on its standard input and answers on its output. */
import type { ChildProcess } from "node:child_process";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { ignorePipeErrors } from "../../src/kernel/child-process.ts";
import type { NetworkNamespace } from "./network-namespace.ts";

interface Waiting {
  readonly resolve: (line: string) => void;
  readonly reject: (error: Error) => void;
}

/** One request object → one reply object; replies may come in any order. Ends when {@link LineProcess.close} is called. */
export class LineProcess {
  readonly #child: ChildProcess;
  readonly #title: string;
  readonly #waiting = new Map<number, Waiting>();
  #nextId = 1;
  #ended: Error | undefined;
  #errorText = "";

  /**
   * @param program file name beside this module without extension: `backend` or `prober`.
   * @param args the program's arguments.
   */
  constructor(namespace: NetworkNamespace, program: string, args: readonly string[] = []) {
    const file = fileURLToPath(new URL(`./${program}.ts`, import.meta.url));
    this.#title = `${program} in ${namespace.name}`;
    this.#child = namespace.spawn([process.execPath, "--disable-sigusr1", file, ...args], {
      stdio: ["pipe", "pipe", "pipe"],
    });
    this.#child.stderr?.setEncoding("utf8").on("data", (text: string) => {
      this.#errorText = (this.#errorText + text).slice(-2000);
    });
    ignorePipeErrors(this.#child);
    this.#child.on("error", (error) => this.#end(error.message));
    this.#child.on("close", (code, signal) => this.#end(`ended with ${signal ?? `status ${code}`} ${this.#errorText}`));
    const { pid, stdout } = this.#child;
    if (pid !== undefined && stdout !== null) {
      createInterface({ input: stdout }).on("line", (line) => this.#receive(line));
    }
  }

  /** Sends a request; resolves with the reply's JSON text. Rejects when the process has ended or ends meanwhile. */
  ask(request: object): Promise<string> {
    if (this.#ended !== undefined) return Promise.reject(this.#ended);
    const id = this.#nextId;
    this.#nextId += 1;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#child.stdin?.write(`${JSON.stringify({ ...request, id })}\n`);
    });
  }

  /** Ends the process by closing its input. */
  close(): void {
    this.#child.stdin?.end();
  }

  #receive(line: string): void {
    const { id } = JSON.parse(line) as { readonly id: number };
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    waiting?.resolve(line);
  }

  #end(reason: string): void {
    this.#ended ??= new Error(`${this.#title}: ${reason.trim()}`);
    for (const waiting of this.#waiting.values()) waiting.reject(this.#ended);
    this.#waiting.clear();
  }
}
