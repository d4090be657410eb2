/** Refusals of the kernel's IPVS in words; both implementations say the same. Pure. */
import { joinHostPort } from "../../net/ip.ts";
import type { IpvsFailure, IpvsOperation } from "./ipvs.ts";
import { virtualServerText } from "./ipvs.ts";

/** What the errno means for this operation (net/netfilter/ipvs/ip_vs_ctl.c). */
export function ipvsFailure(operation: IpvsOperation, code: string): IpvsFailure {
  const verb = operation.kind.replaceAll("-", " ");
  const server = virtualServerText(operation.virtualServer);
  const subject =
    "realServer" in operation
      ? `${joinHostPort(operation.realServer.address, operation.realServer.port)} of ${server}`
      : server;
  return { operation, code, message: `ipvs: cannot ${verb} ${subject}: ${causeOf(operation, code)}` };
}

function causeOf(operation: IpvsOperation, code: string): string {
  switch (code) {
    case "EEXIST":
      return "it exists already (EEXIST)";
    case "ESRCH":
      return "there is no such virtual server (ESRCH)";
    case "ENOENT":
      return "realServer" in operation
        ? "there is no such real server (ENOENT)"
        : `${missingScheduler(operation)} (ENOENT)`;
    case "EPERM":
      return "not permitted, this needs CAP_NET_ADMIN (EPERM)";
    case "EAFNOSUPPORT":
      return "the kernel's IPVS has no IPv6 (EAFNOSUPPORT)";
    case "EINVAL":
      return "realServer" in operation
        ? "the kernel takes local and unicast addresses of the virtual server's family only (EINVAL)"
        : "the kernel calls it invalid (EINVAL)";
    default:
      return code;
  }
}

function missingScheduler({ virtualServer }: IpvsOperation): string {
  if (!("scheduler" in virtualServer)) return "the kernel has no such object";
  const { scheduler } = virtualServer;
  return `the kernel has no scheduler "${scheduler}": load the module ip_vs_${scheduler} or choose another`;
}
