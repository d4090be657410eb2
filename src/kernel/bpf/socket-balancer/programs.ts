/** Any program of a family, by what a socket does. */
import type { Program } from "../asm/program.ts";
import { holdProgram } from "./hold.ts";
import { type LeadOptions, leadProgram } from "./lead.ts";
import type { BalancerMaps } from "./maps.ts";
import { releaseProgram } from "./release.ts";
import { revealProgram } from "./reveal.ts";
import type { SocketCall, SocketKind } from "./socket-kind.ts";

/** @param maps of IPv6 for `IPv6`, else of IPv4. @param options count for `connect` and `sendmsg`, the form for all. */
export function socketProgram(call: SocketCall, kind: SocketKind, maps: BalancerMaps, options: LeadOptions): Program {
  if (call === "connect" || call === "sendmsg") return leadProgram(call, kind, maps, options);
  if (call === "bind") return holdProgram(kind, maps, options);
  if (call === "release") return releaseProgram(kind, maps, options.form);
  return revealProgram(call, kind, maps, options.form);
}
