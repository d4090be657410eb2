/**
 * Whom a service port's clients may be sent to: the ready endpoints, wherever they are, as upstream's userspace mode did;
 * without one, those that terminate but still serve. Traffic policies and topology hints do not count: the proxy's socket does
 * not know by which of the addresses a client came. Pure.
 */
import type { Destination } from "../../kernel/relay/relay.ts";
import type { Endpoint } from "../../model/endpoint.ts";

export function destinationsOf(endpoints: readonly Endpoint[]): readonly Destination[] {
  const ready = endpoints.filter(({ isReady }) => isReady);
  const usable =
    ready.length > 0 ? ready : endpoints.filter(({ isServing, isTerminating }) => isServing && isTerminating);
  return usable.map(({ ip, port }) => ({ address: ip, port }));
}
