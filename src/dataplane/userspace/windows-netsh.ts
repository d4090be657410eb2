/** {@link NetshHost} of this Windows host. */
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { networkInterfaces, tmpdir } from "node:os";
import { join } from "node:path";
import { type ExecResult, execProcess } from "../../kernel/process.ts";
import type { NetshHost } from "./netsh-assigner.ts";

const COMMAND_LIMIT_MS = 30_000;
const SCRIPT_LIMIT_MS = 600_000;

/** From the system's folder: what lies in the working folder must not be taken for it. */
const run = (words: readonly string[], timeoutMs: number, signal: AbortSignal): Promise<ExecResult> =>
  execProcess(join(process.env.SystemRoot ?? "C:\\Windows", "System32", "netsh.exe"), words, { signal, timeoutMs });

export const windowsNetsh: NetshHost = {
  interfaces: networkInterfaces,
  netsh: (words, signal) => run(words, COMMAND_LIMIT_MS, signal),
  async netshScript(text, signal) {
    const folder = await mkdtemp(join(tmpdir(), "kube-proxy-"));
    try {
      const path = join(folder, "addresses.txt");
      await writeFile(path, text);
      await run(["-f", path], SCRIPT_LIMIT_MS, signal);
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  },
  canBind: (address) =>
    new Promise((resolve) => {
      const server = createServer();
      server.once("error", (error: NodeJS.ErrnoException) => resolve(error.code !== "EADDRNOTAVAIL"));
      server.listen({ host: address, port: 0, exclusive: true }, () => server.close(() => resolve(true)));
    }),
};
