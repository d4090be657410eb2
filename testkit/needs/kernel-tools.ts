/** iproute2, iptables, nftables and the like: `npm test -- FILE` installs what is missing if the file reaches this module (scripts/test-needs.mjs). */

/** For the `skip` option of a test: why there can be no namespace here, or `false`. */
export const netnsSkip: string | false = process.getuid?.() === 0 ? false : "network namespaces need root";
