/** Commands that look at a node's kernel, run beside its daemon. */
import { join } from "node:path";
import { DEFAULT_INSPECT_SOCKET } from "../../src/program/program-identity.ts";
import { KUBE_PROXY } from "../../testkit/needs/built-program.ts";
import type { CommandResult } from "../../testkit/net/run-command.ts";
import { stretched } from "../../testkit/support/patience.ts";
import type { ProxyDaemon } from "../../testkit/support/proxy-daemon.ts";

/** Puts the daemon's socket where commands look for it, for what is run then. */
const PLACE = `mount -t tmpfs none /run && mkdir -p "$(dirname ${DEFAULT_INSPECT_SOCKET})" && ln -s "$0" ${DEFAULT_INSPECT_SOCKET} && exec "$@"`;
/** Hides the socket of any daemon on this machine. */
const NOWHERE = 'mount -t tmpfs none /run && exec "$@"';

/** @param socket the daemon's inspect socket; undefined: commands do not find the daemon. */
export function commandsBeside(daemon: ProxyDaemon, node: string, socket: string | undefined) {
  const config = ["--config", join(daemon.folder, "config.json"), "--hostname-override", node];
  return (...argv: readonly string[]) =>
    runBeside(daemon, socket, [...argv, "--kernel", "-f", daemon.manifests, ...config]);
}

/** Runs a command of the program as {@link commandsBeside} does. */
export async function runBeside(
  { namespace }: ProxyDaemon,
  socket: string | undefined,
  argv: readonly string[],
): Promise<CommandResult> {
  const shell = ["unshare", "--mount", "sh", "-c", socket === undefined ? NOWHERE : PLACE, socket ?? "sh"] as const;
  return await namespace.exec([...shell, KUBE_PROXY, ...argv], { timeoutMs: stretched(60_000), allowFailure: true });
}
