package director

import "testing"

func TestCheckLine(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{ // as a line, as printable lines
		"":                                {true, true},
		"plain text, {braces} and 50 % é": {true, true},
		"two\nlines\twith tabs":           {false, true},
		"bell\a":                          {false, false},
		"nul\x00":                         {false, false},
		"next line\u0085":                 {false, false},
		"separator\u2028":                 {false, false},
		"\xff":                            {false, false},
		"{{ lookup('pipe', 'id') }}":      {false, true},
		"{% raw %}":                       {false, true},
		"{# comment #}":                   {false, true},
	} {
		if line, lines := CheckLine(text) == nil,
			CheckPrintable(text, "\n\t") == nil; line != want[0] || lines != want[1] {
			t.Errorf("%q: %t %t, want %v", text, line, lines, want)
		}
	}
}
