/** `dnat`, `snat`, `masquerade` and `redirect` of libnftables' JSON as steps of a walk. */

import type { JsonObject } from "../../kernel/nftables/json.ts";
import { parseIpAddress } from "../../net/ip.ts";
import { NO_MATCH, type Step, type StepResult } from "../netfilter/program.ts";
import { endText, masqueraded, type Packet, redirectAddress, withDestination, withSource } from "../packet.ts";
import { drawn } from "./draw.ts";
import { compileExpression, type Surroundings } from "./expression.ts";
import type { Reading } from "./packet-fields.ts";

const ACCEPT = { kind: "accept" } as const;

/** Compiles a translation. It ends its base chain: the kernel accepts. Pure. */
export function compileTranslation(
  kind: "dnat" | "snat" | "masquerade" | "redirect",
  body: JsonObject,
  text: string,
  surroundings: Surroundings,
): Step {
  const { facts } = surroundings;
  const port = body.port === undefined ? undefined : compileExpression(body.port, surroundings);
  const portFor = (packet: Packet): number | undefined => numberIn(port?.read(packet, 0));
  switch (kind) {
    case "masquerade":
      return {
        text,
        asks: [facts.about.destination],
        run(packet) {
          const address = facts.ownAddressTowards(packet.destination);
          const said = `masquerade: the source becomes ${address ?? `the node's address towards ${packet.destination}`}`;
          return { kind: "verdict", verdict: ACCEPT, packet: masqueraded(packet, address), said };
        },
      };
    case "redirect":
      return {
        text,
        asks: [facts.about.source],
        run(packet) {
          const own = redirectAddress(packet, facts.ownAddressTowards(packet.source));
          const changed = withDestination(packet, own, portFor(packet));
          const said = `redirect to port ${changed.destinationPort} of the node itself`;
          return { kind: "verdict", verdict: ACCEPT, packet: changed, said };
        },
      };
    default: {
      const address = compileExpression(body.addr, surroundings);
      const judge =
        (packet: Packet) =>
        (reading: Reading): StepResult => {
          if (reading.kind === "none") return NO_MATCH;
          if (reading.kind === "maybe") {
            const yes: StepResult = { kind: "lost", because: "it goes where the client's earlier connections went" };
            return { kind: "unknown", question: `${reading.what}, which packets fill`, yes, no: NO_MATCH };
          }
          const [host, number] = reading.kind === "value" ? reading.parts : [];
          const target = typeof host === "string" ? parseIpAddress(host) : undefined;
          if (target === undefined) return { kind: "lost", because: `${text}: the address is not known` };
          const targetPort = typeof number === "number" ? number : portFor(packet);
          const changed = kind === "dnat" ? withDestination(packet, target, targetPort) : withSource(packet, target);
          return {
            kind: "verdict",
            verdict: ACCEPT,
            packet: changed,
            said: `${kind} to ${endText(target, targetPort)}`,
          };
        };
      return {
        text,
        asks: address.asks === undefined ? undefined : [...address.asks, ...(port?.asks ?? [])],
        run: (packet) => drawn(address, packet, judge(packet)),
        observed(packet) {
          const reading = address.read(packet, 0);
          return reading.kind === "none" ? `the map has nothing for this packet` : address.text;
        },
      };
    }
  }
}

function numberIn(reading: Reading | undefined): number | undefined {
  const [value] = reading?.kind === "value" ? reading.parts : [];
  return typeof value === "number" ? value : undefined;
}
