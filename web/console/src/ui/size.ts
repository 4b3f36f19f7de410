// size is an amount of bytes as documents write it.
export function size(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB']
  let n = bytes
  let unit = 0
  while (Math.abs(n) >= 1024 && unit < units.length - 1) {
    n /= 1024
    unit++
  }
  return `${Number(n.toFixed(1))} ${units[unit]}`
}
