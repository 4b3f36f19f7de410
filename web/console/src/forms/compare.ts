// Two texts side by side, line by line.
export interface Row {
  left?: string
  right?: string
  changed: boolean
}

const greatest = 4_000_000 // pairs of lines that are compared; what is larger counts as changed as a whole

// compare pairs the lines of two texts. A line that only one of them has stands alone.
export function compare(left: string, right: string): Row[] {
  const a = linesOf(left)
  const b = linesOf(right)
  let head = 0
  while (head < a.length && head < b.length && a[head] === b[head]) head++
  let tail = 0
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++
  const same = (lines: string[]): Row[] => lines.map((l) => ({ left: l, right: l, changed: false }))
  return [
    ...same(a.slice(0, head)),
    ...middle(a.slice(head, a.length - tail), b.slice(head, b.length - tail)),
    ...same(a.slice(a.length - tail)),
  ]
}

const linesOf = (text: string) => text.replace(/\n$/, '').split('\n')

function middle(a: string[], b: string[]): Row[] {
  if (a.length * b.length > greatest) return beside(a, b)
  // common[i][j] is how many lines a from i on and b from j on have in common, in order.
  const common = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1))
  const at = (i: number, j: number) => common[i]?.[j] ?? 0
  for (let i = a.length - 1; i >= 0; i--) {
    const row = common[i] as Uint32Array
    for (let j = b.length - 1; j >= 0; j--) {
      row[j] = a[i] === b[j] ? at(i + 1, j + 1) + 1 : Math.max(at(i + 1, j), at(i, j + 1))
    }
  }
  const out: Row[] = []
  let gone: string[] = []
  let come: string[] = []
  let [i, j] = [0, 0]
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      out.push(...beside(gone, come), { left: a[i], right: b[j], changed: false })
      gone = []
      come = []
      i++
      j++
    } else if (j >= b.length || (i < a.length && at(i + 1, j) >= at(i, j + 1))) {
      gone.push(a[i++] ?? '')
    } else {
      come.push(b[j++] ?? '')
    }
  }
  return [...out, ...beside(gone, come)]
}

function beside(left: string[], right: string[]): Row[] {
  return Array.from({ length: Math.max(left.length, right.length) }, (_, i) => ({
    left: left[i],
    right: right[i],
    changed: true,
  }))
}

// folded leaves out what is the same on both sides, but for some lines around each change. A number says how many lines
// were left out there.
export function folded(rows: Row[], around = 3): (Row | number)[] {
  const near = new Set<number>()
  rows.forEach((r, i) => {
    if (r.changed) for (let n = i - around; n <= i + around; n++) near.add(n)
  })
  const out: (Row | number)[] = []
  let left = 0
  rows.forEach((r, i) => {
    if (!near.has(i)) {
      left++
      return
    }
    if (left > 0) out.push(left)
    left = 0
    out.push(r)
  })
  if (left > 0) out.push(left)
  return out
}
