/** The faults of the soak test, each of which affects a server temporarily. */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { execProcess } from "../../src/kernel/process.ts";
import { type ApiDaemon, POD_TOKEN, POD_USER } from "./api-daemon.ts";
import { type Fault, WEB_PAGE } from "./faults.ts";
import type { TestApiServer } from "./test-api-server.ts";

/** The targets of a fault. */
export interface Scene {
  readonly server: TestApiServer;
  readonly daemon: ApiDaemon;
  /** Returns numbers in [0, 1). */
  readonly random: () => number;
}

export interface SoakFault {
  readonly name: string;
  /** The program needs a minute or two to notice it: omitted from short runs. */
  readonly isLong?: boolean;
  /** Applies the fault; resolves when the fault is over. */
  strike(scene: Scene): Promise<void>;
}

/** Sleeps for 0.5 to 2.5 seconds. */
const aWhile = (random: () => number): Promise<void> => sleep(500 + 2_000 * random());

/** A fault in the responses of about every second watch or list while it lasts; cuts open connections. */
function answers(name: string, fault: Fault): SoakFault {
  return {
    name,
    async strike({ server, random }) {
      server.switches.fault = () => (random() < 0.7 ? fault : undefined);
      server.cutConnections();
      await aWhile(random);
      server.switches.fault = () => undefined;
    },
  };
}

const status = (code: number, more: Partial<Extract<Fault, { kind: "status" }>> = {}): SoakFault =>
  answers(`status ${code}`, { kind: "status", code, ...more });

export const SOAK_FAULTS: readonly SoakFault[] = [
  {
    name: "connections cut",
    async strike({ server }) {
      server.cutConnections();
    },
  },
  {
    name: "connections cut ten times",
    async strike({ server, random }) {
      for (let time = 0; time < 10; time++) {
        server.cutConnections();
        await sleep(300 * random());
      }
    },
  },
  {
    name: "410, as an ERROR event",
    async strike({ server }) {
      for (const watch of server.watches()) watch.pause();
      await sleep(200);
      server.store.compact();
      server.cutConnections();
    },
  },
  {
    name: "410, as a status",
    async strike({ server, random }) {
      server.switches.refusesOldWatches = true;
      for (const watch of server.watches()) watch.pause();
      await sleep(200);
      server.store.compact();
      server.cutConnections();
      await aWhile(random);
      server.switches.refusesOldWatches = false;
    },
  },
  {
    name: "ERROR events",
    async strike({ server }) {
      for (const watch of server.watches()) watch.sendError({ code: 500 });
    },
  },
  {
    name: "nonsense in watches",
    async strike({ server }) {
      for (const watch of server.watches()) watch.sendNow("MODIFIED", { metadata: {} });
    },
  },
  {
    name: "no streaming lists, tokens expire",
    async strike({ server, random }) {
      server.switches.hasWatchList = false;
      server.store.compact();
      server.cutConnections();
      const end = Date.now() + 500 + 2_000 * random();
      while (Date.now() < end) {
        server.pages.expireTokens();
        await sleep(20);
      }
      server.switches.hasWatchList = true;
    },
  },
  {
    name: "a server that restarts",
    async strike({ server, random }) {
      await server.shutDown();
      await aWhile(random);
      await server.restart();
    },
  },
  {
    name: "a token that is replaced",
    async strike({ server, daemon, random }) {
      const file = join(daemon.folder, "serviceaccount/token");
      const token = `${POD_TOKEN}-${Math.floor(random() * 1e9)}`;
      server.switches.tokens = new Map([[token, POD_USER]]);
      server.cutConnections();
      await sleep(1_000);
      writeFileSync(file, token);
    },
  },
  status(401),
  status(403),
  status(429, { retryAfterSeconds: 1 }),
  status(500),
  status(503),
  answers("web pages", WEB_PAGE),
  answers("answers that end early", { kind: "truncate", afterBytes: 20_000 }),
  answers("answers that are cut", { kind: "cut", afterBytes: 20_000 }),
  answers("connections closed without a response", { kind: "reset" }),
  answers("slow answers", { kind: "slow", pieceBytes: 4_000, delayMs: 5 }),
  {
    name: "packets lost for ten seconds",
    strike: ({ server }) => losePackets(String(server.port), 10_000),
  },
  {
    name: "connections forgotten by the network (half-open)",
    isLong: true,
    strike: ({ server }) => losePackets(`{ ${server.clientPorts.join(", ")} }`, 45_000),
  },
  {
    name: "no answer to new requests",
    isLong: true,
    async strike({ server, random }) {
      server.switches.fault = () => ({ kind: "silent" });
      server.cutConnections();
      await aWhile(random);
      server.switches.fault = () => undefined;
    },
  },
];

/** Drops packets from and to the TCP ports temporarily. */
async function losePackets(ports: string, milliseconds: number): Promise<void> {
  const rules = ["sport", "dport"].map((side) => `add rule inet kpts-soak input tcp ${side} ${ports} drop`);
  const chain = "add chain inet kpts-soak input { type filter hook input priority -300; }";
  await nft(["add table inet kpts-soak", chain, ...rules].join("\n"));
  await sleep(milliseconds);
  await nft("delete table inet kpts-soak");
}

async function nft(script: string): Promise<void> {
  const { status: code, stderr } = await execProcess("nft", ["-f", "-"], { stdin: [script] });
  if (code !== 0) throw new Error(`nft: ${stderr}`);
}
