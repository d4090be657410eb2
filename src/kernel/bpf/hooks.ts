/** Places in the cgroup where socket programs run; each with the numbers of its program type and of its attachment (reference ebpf-programs.md §3.4). */
export const HOOKS = {
  connect4: { programType: 18, attachType: 10 },
  connect6: { programType: 18, attachType: 11 },
  sendmsg4: { programType: 18, attachType: 14 },
  sendmsg6: { programType: 18, attachType: 15 },
  recvmsg4: { programType: 18, attachType: 19 },
  recvmsg6: { programType: 18, attachType: 20 },
  getpeername4: { programType: 18, attachType: 29 },
  getpeername6: { programType: 18, attachType: 30 },
  /** A socket has got its address and port by bind(), and not by itself when it connects or sends. */
  post_bind4: { programType: 9, attachType: 12 },
  post_bind6: { programType: 9, attachType: 13 },
  /** The last descriptor of a socket is closed; kernel sockets do not run it. */
  sock_release: { programType: 9, attachType: 34 },
} as const;

export type Hook = keyof typeof HOOKS;
