import { useQuery } from '@tanstack/react-query'

const kept = 30 * 60_000 // ms

// useAsked asks something that may take minutes, when a person wants it: refetch. Who leaves the page meanwhile finds
// the answer when coming back, and nothing is asked a second time.
export function useAsked<T>(what: readonly unknown[], ask: () => Promise<T>) {
  return useQuery({ queryKey: ['asked', ...what], queryFn: ask, enabled: false, retry: false, gcTime: kept })
}
