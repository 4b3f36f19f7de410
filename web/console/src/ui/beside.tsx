import { compare, folded } from '../forms/compare'

interface BesideProps {
  left: string
  right: string
  titles: [left: string, right: string]
}

// Beside shows two texts side by side. Lines that differ have a colour and a sign.
export function Beside({ left, right, titles }: BesideProps) {
  return (
    <table className="mono diff beside" aria-label={titles.join(', and ')}>
      <thead>
        <tr>
          {titles.map((t) => (
            <th key={t} scope="col">
              {t}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {folded(compare(left, right)).map((row, i) =>
          typeof row === 'number' ? (
            <tr key={i}>
              <td colSpan={2} className="hint">
                {row === 1 ? '1 line is the same' : `${row} lines are the same`}
              </td>
            </tr>
          ) : (
            <tr key={i}>
              <td className={row.changed && row.left !== undefined ? 'minus' : ''}>{row.left}</td>
              <td className={row.changed && row.right !== undefined ? 'plus' : ''}>{row.right}</td>
            </tr>
          ),
        )}
      </tbody>
    </table>
  )
}
