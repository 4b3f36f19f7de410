// nonce is what styles that code adds to the page have to carry: its policy allows no others.
export function nonce(): string {
  return document.querySelector<HTMLMetaElement>('meta[property=csp-nonce]')?.nonce ?? ''
}
