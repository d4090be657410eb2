/**
 * Proxy modes that the host's own kernel runs in the same test run, and over TCP and UDP:
 * `KPTS_HOST_MODES=iptables,nftables`. Set in the virtual machine only (testkit/vm), which need not repeat that.
 */
export const HOST_MODES: readonly string[] = process.env.KPTS_HOST_MODES?.split(",") ?? [];
