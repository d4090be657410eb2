/** An address as explanations have it, with a port: `10.96.0.1:80`, `[fd00::1]:80`. Pure. */
export function hostPort(address: string, port: number): string {
  return address.includes(":") ? `[${address}]:${port}` : `${address}:${port}`;
}
