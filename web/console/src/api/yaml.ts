// yaml is the part of a request that sends a text of documents as it is.
export const yaml = (text: string) => ({
  headers: { 'Content-Type': 'application/yaml' },
  body: text as never,
  bodySerializer: (b: unknown) => b as string,
})
