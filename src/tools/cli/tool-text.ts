import { type Exec, ExecError, execProcess } from "../../kernel/process.ts";
import { UsageError } from "./output.ts";

const LIMIT_MS = 60_000;

/** What a tool of this host prints. @throws UsageError if it is missing or fails */
export async function toolText(command: readonly string[], exec: Exec = execProcess): Promise<string> {
  return (await toolOutput(command, exec)).stdout;
}

/** {@link toolText}, with what it complains of. @throws UsageError */
export async function toolOutput([file = "", ...args]: readonly string[], exec: Exec = execProcess) {
  const { status, stdout, stderr } = await exec(file, args, { timeoutMs: LIMIT_MS }).catch((error) => {
    throw error instanceof ExecError ? new UsageError(error.message) : error;
  });
  if (status === 0) return { stdout, stderr };
  throw new UsageError(`${[file, ...args].join(" ")}: ${stderr.trim() || `ended with status ${status}`}`);
}
