/** A process in a network namespace and a cgroup of its own, that listens and connects when told. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import type { TestContext } from "node:test";
import { fileURLToPath } from "node:url";
import { moveInto } from "../../testing/test-cgroup.ts";
import type { DialledProtocol, DialReport, Request } from "./dialler-side.ts";
import type { Place } from "./dialling.ts";
import type { dialInSuccession, sendBesides } from "./raw-sockets.ts";

export interface Dialler {
  readonly pid: number;
  /** Listens on a free port of the address. @returns the port. */
  listen(protocol: "tcp" | "udp", address: string): Promise<number>;
  /** Binds a socket and closes it; port 0 is any. @returns the code of why it could not. */
  bind(protocol: "tcp" | "udp", address: string, port: number): Promise<string | undefined>;
  /** That of its network namespace. */
  netnsCookie(): Promise<bigint>;
  /** Connects over TCP, once after the other, to the ports in turn. @returns for each port how often each port or code was met. */
  dialInTurn(address: string, ports: readonly number[], count: number): Promise<Record<number, Record<string, number>>>;
  /** Connects a UDP socket that stays under this name; the same again when there is one. */
  hold(name: string, to: Pick<Place, "port"> & { readonly address: string }): Promise<DialReport>;
  /** Sends over a held socket, and waits for the answer. The code of what befell it, also if that was before. */
  ask(name: string): Promise<DialReport>;
  drop(name: string): Promise<unknown>;
  /** IPv4. */
  readonly sendBesides: typeof sendBesides;
  /** IPv4. */
  dialInSuccession(...args: Parameters<typeof dialInSuccession>): Promise<readonly string[]>;
  /** Connects, and for TCP waits for the peer's greeting. @param from the address to which a TCP socket is bound before. */
  dial(
    protocol: DialledProtocol,
    to: Pick<Place, "port"> & { readonly address: string },
    from?: string,
  ): Promise<DialReport>;
}

const SIDE = fileURLToPath(new URL("./dialler-side.ts", import.meta.url));

/** Ends with the test. */
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
    hold: async (name, { address, port }) => (await ask({ what: "hold", name, address, port })) as DialReport,
    ask: async (name) => (await ask({ what: "ask", name })) as DialReport,
    sendBesides: async (...args) => (await ask({ what: "send besides", args })) as DialReport,
    dialInSuccession: async (...args) => (await ask({ what: "dial in succession", args })) as readonly string[],
    drop: (name) => ask({ what: "drop", name }),
    dial: async (protocol, { address, port }, from) =>
      (await ask({ what: "dial", protocol, address, port, from })) as DialReport,
  };
}
