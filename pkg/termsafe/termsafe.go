// Package termsafe keeps terminal control characters out of the output of tools: agents and people
// write names and owners into objects, and such text may hold escape sequences.
//
// It knows nothing of what is printed.
package termsafe

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Writer shows characters that a terminal obeys as \u001b and the like, as JSON does. Each Write
// must end between two characters.
func Writer(terminal io.Writer) io.Writer { return writer{terminal} }

type writer struct{ out io.Writer }

func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.out, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Text is s as Writer writes it. Newlines and tabs stay.
func Text(s string) string {
	if strings.IndexFunc(s, obeyed) < 0 && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteRune(utf8.RuneError)
		case !obeyed(r):
			b.WriteRune(r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
		s = s[size:]
	}
	return b.String()
}

// obeyed reports whether a terminal acts on a character in place of showing it, or
// shows the text around it in another order (Unicode's categories Cc and Cf).
func obeyed(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
}

// maxLine bounds a line, in bytes: events quote one in a note, which may have 1024.
const maxLine = 500

// Line makes text from other programs fit on one line of a terminal, and bounds its length.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, text)
	text = strings.TrimSuffix(strings.Join(strings.Fields(text), " "), ".")
	return Cut(text, maxLine)
}

// Cut bounds a text to so many bytes, without a part of a character. It must have room for an ellipsis.
func Cut(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis
}
