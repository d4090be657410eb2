/** Processes of a bench that answer lines of JSON with lines of JSON. */
import { type ChildProcess, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { signalChild } from "../src/kernel/child-process.ts";
import { atExit } from "./namespace.ts";

export interface LineProcess {
  /** The next line that it writes. */
  next(): Promise<string>;
  tell(task: unknown): void;
  /** Tells it, and waits for the next line. */
  ask<Answer>(task: unknown): Promise<Answer>;
  end(): void;
}

/** Starts a command; it ends with the bench. */
export function startLines(command: string, words: readonly string[]): LineProcess {
  const child: ChildProcess = spawn(command, words, { stdio: ["pipe", "pipe", "inherit"] });
  const end = atExit(() => void signalChild(child, "SIGKILL"));
  const { stdin, stdout } = child;
  if (stdin === null || stdout === null) throw new Error(`${command} has no pipes`);
  stdin.on("error", () => {});
  const lines = createInterface({ input: stdout })[Symbol.asyncIterator]();
  const next = async (): Promise<string> => {
    const { value, done } = await lines.next();
    if (done === true) throw new Error(`${[command, ...words].join(" ")} ended`);
    return value;
  };
  const tell = (task: unknown): void => void stdin.write(`${JSON.stringify(task)}\n`);
  return {
    next,
    tell,
    async ask(task) {
      tell(task);
      return JSON.parse(await next());
    },
    end,
  };
}
