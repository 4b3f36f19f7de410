// Diff shows a difference as the director gives it: lines that begin with +, - or a space.
export function Diff({ of }: { of: string }) {
  const lines = of.replace(/\n$/, '').split('\n')
  return (
    <pre className="mono diff" tabIndex={0} aria-label="Difference">
      {lines.map((l, i) => {
        const sign = l[0] === '+' ? 'plus' : l[0] === '-' ? 'minus' : ''
        return (
          <div key={i} className={sign}>
            {sign ? l.slice(1) : l}
          </div>
        )
      })}
    </pre>
  )
}
