/** Packets to service ports that a node keeps as they were: what becomes of them is not compared. */
import { declaredFrontends } from "../../model/frontend.ts";
import type { ServicePort } from "../../model/service-port.ts";
import type { IpAddress } from "../../net/ip.ts";
import { fieldsQuestion, within } from "../../trace/question.ts";
import { exactly, holds, only } from "./asking.ts";
import type { Subject } from "./classes.ts";
import type { Fate } from "./fate.ts";
import type { Side } from "./proof.ts";

/** @param ports as they should be, and as they are in force. @param own the node's addresses. */
export function besideStanding(
  ports: readonly ServicePort[],
  own: readonly IpAddress[],
  sides: readonly [Side, Side],
): readonly [Side, Side] {
  if (ports.length === 0) return sides;
  // Also the other ports of a cluster IP depend on whether it is in use.
  const toClusterIP = within("destination", exactly(ports.map(({ clusterIP }) => clusterIP)));
  const keys = ports.flatMap((one) =>
    declaredFrontends(one).flatMap(({ address, port }) =>
      (address === undefined ? own : [address]).map((at) => ({
        patterns: exactly([at, one.protocol.toLowerCase(), port]),
        outcome: "",
      })),
    ),
  );
  const toFrontend = fieldsQuestion(["destination", "protocol", "destinationPort"], keys);
  const aside = (subject: Subject<Fate>): Subject<Fate> => ({
    fateOf(packet, asked) {
      const isAside = holds(toClusterIP, packet, asked) || holds(toFrontend, packet, asked);
      return isAside ? only("not compared") : subject.fateOf(packet, asked);
    },
  });
  const [one, other] = sides;
  const { proxyPart } = other;
  return [
    { ...one, fates: aside(one.fates) },
    { ...other, fates: aside(other.fates), ...(proxyPart && { proxyPart: aside(proxyPart) }) },
  ];
}
