/** The test API server in a process of its own, as the benches talk to it. */
import { fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import type { ServerCommand, ServerReport, ServerTask } from "./api-server-process.ts";

const PROGRAM = fileURLToPath(new URL("./api-server-process.ts", import.meta.url));

export interface ApiServerChild {
  readonly ready: Extract<ServerReport, { kind: "ready" }>;
  /** Has endpoints changed. @returns what was done. */
  stream(command: ServerCommand): Promise<Extract<ServerReport, { kind: "done" }>>;
  stop(): void;
}

/** Starts it. Resolves when all objects are there. */
export async function startApiServer(task: ServerTask): Promise<ApiServerChild> {
  const child = fork(PROGRAM, [JSON.stringify(task)], { stdio: ["ignore", 2, "inherit", "ipc"] });
  const report = (): Promise<ServerReport> =>
    new Promise((resolve, reject) => {
      child.once("message", (message) => resolve(message as ServerReport)); // its own protocol
      child.once("exit", (status) => reject(new Error(`the API server ended with ${status}`)));
    });
  const ready = await report();
  if (ready.kind !== "ready") throw new Error("the API server said something else first");
  return {
    ready,
    async stream(command) {
      child.send(command);
      const done = await report();
      if (done.kind !== "done") throw new Error("the API server did not do as it was told");
      return done;
    },
    stop: () => child.disconnect(),
  };
}
