export const day = 86_400_000

// endOf says how near the end of a certificate is, as a status and a word.
export function endOf(ends: string, now: Date): { of: string; word: string } {
  const left = new Date(ends).getTime() - now.getTime()
  if (left < 0) return { of: 'failed', word: 'ended' }
  if (left < 30 * day) return { of: 'late', word: 'ends soon' }
  return { of: 'ok', word: 'good' }
}
