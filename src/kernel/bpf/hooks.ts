/** Hooks of socket programs in the cgroup, with the numbers of the program type and the attach type (reference ebpf-programs.md §3.4). */
export const HOOKS = {
  connect4: { programType: 18, attachType: 10 },
  connect6: { programType: 18, attachType: 11 },
  sendmsg4: { programType: 18, attachType: 14 },
  sendmsg6: { programType: 18, attachType: 15 },
  recvmsg4: { programType: 18, attachType: 19 },
  recvmsg6: { programType: 18, attachType: 20 },
  getpeername4: { programType: 18, attachType: 29 },
  getpeername6: { programType: 18, attachType: 30 },
  /** After bind() has set the socket's address and port; not for automatic binding by connect or send. */
  post_bind4: { programType: 9, attachType: 12 },
  post_bind6: { programType: 9, attachType: 13 },
  /** When the last descriptor of a socket is closed; kernel sockets do not run it. */
  sock_release: { programType: 9, attachType: 34 },
} as const;

export type Hook = keyof typeof HOOKS;
