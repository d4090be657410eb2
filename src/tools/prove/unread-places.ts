/** What is at devices and is not read: packets that meet it, or whose answers do, are not proved, and all others are. */
import type { Dump } from "../../trace/dump/recognise.ts";
import type { Outcome } from "../../trace/netfilter/tree.ts";
import type { Packet } from "../../trace/packet.ts";
import { whichOf } from "../../trace/question.ts";
import type { Ask } from "./asking.ts";
import { UnprovableError } from "./classes.ts";

export function unreadPlaces(dumps: readonly Dump[]) {
  const places = dumps.flatMap((dump) =>
    dump.kind === "unread" && dump.past !== undefined ? [{ ...dump.past, what: dump.what }] : [],
  );
  const ways = (of: "comesIn" | "goesOut") =>
    new Map(places.flatMap((place) => place[of].map((name) => [name, place.what] as const)));
  const [incoming, outgoing] = [ways("comesIn"), ways("goesOut")];
  const asks = (["inInterface", "bridgePort"] as const).map((field) => whichOf(field, [...incoming.keys()]));
  const meets = (how: string, what: string | undefined): void => {
    if (what !== undefined) throw new UnprovableError(`packets that ${how} meet ${what}`);
  };
  return {
    /** @throws UnprovableError for packets that come in there: answers to them go out there, too. */
    enter(packet: Packet, ask: Ask): void {
      if (places.length === 0) return;
      for (const question of asks) {
        ask(question, packet);
        const [device = ""] = question.values(packet) ?? [];
        meets(`come in by ${device}`, incoming.get(String(device)));
      }
    },
    /** @throws UnprovableError for packets that go out there: answers to them come in there, too. */
    leave({ inInterface }: Packet, { fate, packet }: Pick<Outcome, "fate" | "packet">): void {
      if (places.length === 0 || fate.kind === "dropped" || fate.kind === "uncertain") return;
      // A refusal goes back to where the packet came from.
      const isBack = fate.kind === "refused" || packet.outInterface === "";
      const device = isBack ? inInterface || "lo" : packet.outInterface;
      if (device === undefined) meets("go out by a device that is not known may", places[0]?.what);
      else meets(`go out by ${device}`, outgoing.get(device));
    },
  };
}
