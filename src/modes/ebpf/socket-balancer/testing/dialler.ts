/** A process with its own network namespace and cgroup that listens and connects on request. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { moveInto } from "../../../../kernel/bpf/testing/test-cgroup.ts";
import type { DialledProtocol, DialReport, Request } from "./dialler-side.ts";
import type { Place } from "./dialling.ts";
import type { dialInSuccession, sendBesides } from "./raw-sockets.ts";

export interface Dialler {
  readonly pid: number;
  /** Listens on a free port of the address. @returns the port. */
  listen(protocol: "tcp" | "udp", address: string): Promise<number>;
  /** Binds a socket and closes it; port 0 is any. @returns the error code, if it failed. */
  bind(protocol: "tcp" | "udp", address: string, port: number): Promise<string | undefined>;
  /** The cookie of its network namespace. */
  netnsCookie(): Promise<bigint>;
  /** Connects over TCP to the ports in turn. @returns for each port, how often each reached port or error code occurred. */
  dialInTurn(address: string, ports: readonly number[], count: number): Promise<Record<number, Record<string, number>>>;
  /**
   * Connects a UDP socket and keeps it under this name; reconnects an existing one.
   * @param isResolver whether it connects again by itself as soon as it is disconnected. @default false
   */
  hold(name: string, to: Pick<Place, "port"> & { readonly address: string }, isResolver?: boolean): Promise<DialReport>;
  /** Sends over a held socket and waits for the answer. Also reports an error that occurred before. */
  ask(name: string): Promise<DialReport>;
  drop(name: string): Promise<unknown>;
  /** IPv4 only. */
  readonly sendBesides: typeof sendBesides;
  /** IPv4 only. */
  dialInSuccession(...args: Parameters<typeof dialInSuccession>): Promise<readonly string[]>;
  /** Connects; for TCP, waits for the peer's greeting. @param from the address to bind a TCP socket to first. */
  dial(
    protocol: DialledProtocol,
    to: Pick<Place, "port"> & { readonly address: string },
    from?: string,
  ): Promise<DialReport>;
}

const SIDE = fileURLToPath(new URL("./dialler-side.ts", import.meta.url));

/** The process ends with the test. */
export async function startDialler(t: TestContext, cgroup: string): Promise<Dialler> {
  const script = 'ip link set lo up && exec "$0" "$1"';
  const child: ChildProcess = spawn("unshare", ["--net", "sh", "-c", script, process.execPath, SIDE], {
    stdio: ["ignore", "inherit", "inherit", "ipc"],
  });
  t.after(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  await once(child, "message");
  const { pid } = child;
  if (pid === undefined) throw new Error("the dialler did not start");
  moveInto(cgroup, pid);
  const ask = async (request: Request): Promise<unknown> => {
    const answer = once(child, "message");
    child.send(request);
    const [message] = await answer;
    return message;
  };
  return {
    pid,
    listen: async (protocol, address) => Number(await ask({ what: "listen", protocol, address })),
    bind: async (protocol, address, port) =>
      ((await ask({ what: "bind", protocol, address, port })) as DialReport).code,
    netnsCookie: async () => BigInt(String(await ask({ what: "netns cookie" }))),
    dialInTurn: async (address, ports, count) =>
      (await ask({ what: "dial in turn", address, ports, count })) as Record<number, Record<string, number>>,
    hold: async (name, { address, port }, isResolver) =>
      (await ask({ what: "hold", name, address, port, isResolver })) as DialReport,
    ask: async (name) => (await ask({ what: "ask", name })) as DialReport,
    sendBesides: async (...args) => (await ask({ what: "send besides", args })) as DialReport,
    dialInSuccession: async (...args) => (await ask({ what: "dial in succession", args })) as readonly string[],
    drop: (name) => ask({ what: "drop", name }),
    dial: async (protocol, { address, port }, from) =>
      (await ask({ what: "dial", protocol, address, port, from })) as DialReport,
  };
}
