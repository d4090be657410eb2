/** Refusals of device and address changes in words; both implementations say the same. Pure. */
import type { IpAddress } from "../../net/ip.ts";
import type { LinkAddressFailure } from "./links.ts";

const CAUSES: Readonly<Record<string, string>> = {
  ENODEV: "there is no such device",
  EACCES: "IPv6 is disabled on the device",
  EPERM: "not permitted, this needs CAP_NET_ADMIN",
};

/** @param what as in "cannot what". */
export function linkFailure(
  what: "add" | "remove",
  link: string,
  address: IpAddress,
  code: string,
): LinkAddressFailure {
  const where = what === "add" ? `to ${link}` : `from ${link}`;
  const cause = CAUSES[code];
  return {
    address,
    code,
    message: `cannot ${what} ${address} ${where}: ${cause === undefined ? code : `${cause} (${code})`}`,
  };
}

/** The kernel has no dummy devices. */
export function noDummyDevices(name: string, options?: ErrorOptions): Error {
  return new Error(
    `cannot create the device ${name}: the kernel has no dummy devices: load the module "dummy" (modprobe dummy)`,
    options,
  );
}

/** The name belongs to a device of another kind. */
export function notADummy(name: string, kind: string | undefined): Error {
  const what = kind === undefined ? "no virtual device" : `a ${kind} device`;
  return new Error(`the device ${name} is ${what}, a dummy device is needed: delete or rename it`);
}
