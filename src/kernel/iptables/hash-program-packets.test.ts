/** The kernel's hash of packets beside ours: both families and both back ends. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { netnsFor, netnsSkip } from "../../../testkit/support/netns.ts";
import { IP_FAMILIES, type IpAddress } from "../../net/ip.ts";
import { clientHash, hashProgramText } from "./hash-program.ts";
import { binariesOf } from "./testing/binaries.ts";

const CLIENTS = 100;
const BELOW = 0x55555555;
const SEEDS = [0xcafe1234, 7, 0xffffffff];

/** Sends a datagram from each address that its arguments name, and prints the ports. */
const SENDER = `
const dgram = require("node:dgram");
const [to, ...from] = process.argv.slice(1);
(async () => {
  for (const address of from) {
    const socket = dgram.createSocket(to.includes(":") ? "udp6" : "udp4");
    await new Promise((done) => socket.bind(0, address, done));
    console.log(String(address), String(socket.address().port));
    await new Promise((done) => socket.send("x", 9, to, done));
    socket.close();
  }
})();`;

for (const backEnd of ["nft", "legacy"] as const) {
  for (const family of IP_FAMILIES) {
    test(`${family}, ${backEnd}: packets match as computed, and rules are saved and restored unchanged`, {
      skip: netnsSkip,
    }, async (t) => {
      const { exec } = await netnsFor(t, `hash-${backEnd}`);
      const run = async (file: string, args: readonly string[], stdin?: string): Promise<string> => {
        const { status, stdout, stderr } = await exec(file, args, stdin === undefined ? {} : { stdin: [stdin] });
        assert.equal(status, 0, `${file} ${args.join(" ")}: ${stderr}`);
        return stdout;
      };
      const { rule, save, restore } = binariesOf(family, backEnd);
      const isSix = family === "IPv6";
      const clients = Array.from({ length: CLIENTS }, (_, n) =>
        isSix ? `fd00:0:${n % 7}::${n + 1}` : `127.0.${n % 7}.${n + 1}`,
      );
      await run("ip", ["link", "set", "lo", "up"]);
      const added = clients.map((one) => `addr add ${one}/128 dev lo nodad\n`).join("");
      if (isSix) await run("ip", ["-6", "-batch", "-"], added);
      const programs = [false, true].flatMap((isFlow) => SEEDS.map((seed) => ({ family, isFlow, seed, below: BELOW })));
      for (const program of programs) {
        const match = ["-p", "udp", "--dport", "9", "-m", "bpf", "--bytecode", hashProgramText(program)];
        await run(rule, ["-t", "mangle", "-A", "OUTPUT", ...match]);
      }
      const sent = await run(process.execPath, ["-e", SENDER, isSix ? "::1" : "127.0.0.1", ...clients]);
      const ends = sent
        .trim()
        .split("\n")
        .map((line) => line.split(" "));
      assert.equal(ends.length, CLIENTS);
      const wanted = programs.map(
        (program) =>
          ends.filter(([from, port]) => (clientHash(program, from as IpAddress, Number(port)) ?? 0) < BELOW).length,
      );
      const saved = await run(save, ["-t", "mangle", "-c"]);
      const rules = saved.split("\n").filter((line) => line.includes("--bytecode"));
      assert.deepEqual(
        rules.map((line) => Number(/^\[(\d+):/.exec(line)?.[1])),
        wanted,
      );
      for (const [index, program] of programs.entries())
        assert.ok(rules[index]?.includes(`-m bpf --bytecode "${hashProgramText(program)}"`));
      await run(restore, [], saved);
      const rulesIn = (text: string) => text.match(/(?<=^\[\S+ )-A.*/gm);
      assert.deepEqual(rulesIn(await run(save, ["-t", "mangle", "-c"])), rulesIn(saved));
    });
  }
}
