package whois

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cilium-pool/cilium-pool-operator/pkg/config"
)

// holderLog are the lines of the operator's log that tell who held an address, the oldest first.
type holderLog struct {
	addr  netip.Addr
	lines []config.HolderLine
	// from and until are the times of the first and the last line of any kind; zero: there is none.
	from, until time.Time
	// progress receives the number of lines read.
	progress func(lines int)
	read     int
}

// readFiles reads files, plain or compressed by gzip, in any order; "-" is stdin.
func (l *holderLog) readFiles(stdin io.Reader, files []string) error {
	for _, name := range files {
		if err := l.readFile(stdin, name); err != nil {
			return fmt.Errorf("reading --log %s: %w", name, err)
		}
	}
	if l.from.IsZero() {
		return errors.New("--log has no line of the operator's log: give its JSON (--log-format=json), as kubectl logs or a log store has it")
	}
	slices.SortStableFunc(l.lines, func(a, b config.HolderLine) int { return a.Time.Compare(b.Time) })
	// A log store may have a line twice.
	l.lines = slices.CompactFunc(l.lines, func(a, b config.HolderLine) bool { return a == b })
	return nil
}

func (l *holderLog) readFile(stdin io.Reader, name string) error {
	source := stdin
	if name != "-" {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		source = file
	}
	lines := bufio.NewReaderSize(source, 1<<16)
	if magic, _ := lines.Peek(2); bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(lines)
		if err != nil {
			return err
		}
		lines = bufio.NewReaderSize(unpacked, 1<<16)
	}
	for {
		line, err := lines.ReadBytes('\n')
		l.readLine(line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine reads a line with a JSON object, after any prefix. A line of another form is none of the operator's.
func (l *holderLog) readLine(line []byte) {
	const progressEvery = 10_000
	if l.read++; l.read%progressEvery == 0 && l.progress != nil {
		l.progress(l.read)
	}
	begin := bytes.IndexByte(line, '{')
	if begin < 0 {
		return
	}
	line = line[begin:]
	if bytes.Contains(line, []byte(`\"msg\":`)) {
		line = unwrap(line)
	}
	var header struct {
		Time    time.Time `json:"ts"`
		Message string    `json:"msg"`
	}
	if err := json.Unmarshal(line, &header); err != nil || header.Time.IsZero() {
		return
	}
	if l.from.IsZero() || header.Time.Before(l.from) {
		l.from = header.Time
	}
	if header.Time.After(l.until) {
		l.until = header.Time
	}
	switch header.Message {
	case config.BlockClaimed, config.BlockReturned, config.BlockFreed, config.AddressKept, config.AddressReleased:
	default:
		return
	}
	var holder config.HolderLine
	if err := json.Unmarshal(line, &holder); err == nil && (holder.Block.Contains(l.addr) || holder.Address == l.addr) {
		l.lines = append(l.lines, holder)
	}
}

// unwrap returns the line in a field of a log store's own object.
func unwrap(line []byte) []byte {
	var fields map[string]any
	if err := json.Unmarshal(line, &fields); err != nil {
		return line
	}
	for _, value := range fields {
		text, isText := value.(string)
		begin := strings.IndexByte(text, '{')
		if isText && begin >= 0 && strings.Contains(text, `"msg":`) {
			return []byte(text[begin:])
		}
	}
	return line
}
