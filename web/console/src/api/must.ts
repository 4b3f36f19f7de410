// must returns the data of an answer, and throws the problem of one that failed.
export async function must<T>(answer: Promise<{ data?: T; error?: unknown; response: Response }>): Promise<T> {
  const { data, error, response } = await answer
  if (error !== undefined || !response.ok) throw error ?? new Error(`The director answered ${response.status}.`)
  return data as T
}
