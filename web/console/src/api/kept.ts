// Answers that the director does not send again while they have not changed. It names each by a hash of its content, so
// what it says is unchanged is what the user may see now.

interface Kept {
  tag: string
  text: string
}

const most = 50 // answers
const longest = 2 << 20 // characters

// KeptAnswers holds the last answers in memory. A cache of the browser would write them to its disk.
export class KeptAnswers {
  private readonly byURL = new Map<string, Kept>() // the one that was used last is last

  // ask tells the director which answer is here.
  ask(request: Request): void {
    const kept = request.method === 'GET' ? this.byURL.get(request.url) : undefined
    if (kept) request.headers.set('If-None-Match', kept.tag)
  }

  // answer returns the answer that stands for the one that came.
  async answer(request: Request, came: Response): Promise<Response> {
    const tag = came.headers.get('ETag')
    if (came.status === 304) {
      const kept = this.byURL.get(request.url)
      if (kept?.tag !== tag || !kept) throw new Error('The director sent no answer. Load the page again.')
      this.keep(request.url, kept)
      return new Response(kept.text, { headers: came.headers })
    }
    if (
      request.method === 'GET' &&
      came.ok &&
      tag &&
      came.headers.get('Content-Type')?.startsWith('application/json')
    ) {
      const text = await came.clone().text()
      if (text.length <= longest) this.keep(request.url, { tag, text })
    }
    return came
  }

  private keep(url: string, kept: Kept): void {
    this.byURL.delete(url)
    this.byURL.set(url, kept)
    const [oldest] = this.byURL.keys()
    if (this.byURL.size > most && oldest !== undefined) this.byURL.delete(oldest)
  }
}
