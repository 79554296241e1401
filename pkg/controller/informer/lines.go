package informer

import (
	"bufio"
	"errors"
	"io"

	"k8s.io/apimachinery/pkg/runtime"
)

// lineBuffer bytes are read at once: a CiliumNode and more.
const lineBuffer = 16 << 10

// lineFramer takes each line of a watch in JSON for one event, as the API server ends
// every event with a line feed and writes no other. The framer of apimachinery parses an
// event to find its end.
type lineFramer struct{ runtime.Framer }

// NewFrameReader returns a reader of lines.
func (lineFramer) NewFrameReader(r io.ReadCloser) io.ReadCloser {
	return &lineReader{closer: r, from: bufio.NewReaderSize(r, lineBuffer)}
}

// lineReader reads lines. Its client must read all of a line before it goes on to the
// next.
type lineReader struct {
	closer io.Closer
	from   *bufio.Reader
	// rest is what has been read of a line and not returned; more: the line goes on.
	rest []byte
	more bool
}

// Read returns a line, or io.ErrShortBuffer and as much of it as fits.
func (l *lineReader) Read(data []byte) (n int, err error) {
	for n < len(data) {
		if len(l.rest) == 0 {
			if err := l.fill(); err != nil {
				return 0, err
			}
		}
		copied := copy(data[n:], l.rest)
		n, l.rest = n+copied, l.rest[copied:]
		if len(l.rest) == 0 && !l.more {
			return n, nil
		}
	}
	return n, io.ErrShortBuffer
}

// fill reads a line, or as much of it as the buffer holds.
func (l *lineReader) fill() error {
	line, err := l.from.ReadSlice('\n')
	begun := l.more || len(line) > 0
	l.rest, l.more = line, errors.Is(err, bufio.ErrBufferFull)
	switch {
	case l.more:
		return nil
	case errors.Is(err, io.EOF) && begun:
		return io.ErrUnexpectedEOF
	}
	return err
}

// Close closes the stream.
func (l *lineReader) Close() error { return l.closer.Close() }
