package main

import (
	"encoding/binary"
	"net"
	"sync"
	"time"
)

const (
	interval = 50 * time.Millisecond
	// overdue is the age of a lost datagram: no reply has come.
	overdue = time.Second
)

// pinger records, by number, which datagrams to one peer were answered.
type pinger struct {
	mu       sync.Mutex
	sentAt   []time.Time
	answered []bool
}

// result is the result of pinging one peer. Datagrams younger than a second are left out.
type result struct {
	Sent, Lost   int
	LongestGapMs int64
}

func newPinger() *pinger { return &pinger{} }

func (p *pinger) send(conn net.Conn) {
	for range time.Tick(interval) {
		var number [8]byte
		binary.BigEndian.PutUint64(number[:], p.next(time.Now()))
		_, _ = conn.Write(number[:]) // A failed send counts as lost.
	}
}

func (p *pinger) receive(conn net.Conn) {
	var number [8]byte
	for {
		if n, err := conn.Read(number[:]); err == nil && n == len(number) {
			p.answer(binary.BigEndian.Uint64(number[:]))
		}
	}
}

func (p *pinger) next(now time.Time) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sentAt, p.answered = append(p.sentAt, now), append(p.answered, false)
	return uint64(len(p.sentAt) - 1)
}

func (p *pinger) answer(number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if number < uint64(len(p.answered)) {
		p.answered[number] = true
	}
}

// result counts losses. A gap lasts from the first lost datagram of a series to the next
// answered one.
func (p *pinger) result(now time.Time) result {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out result
	gapBegan := -1
	for i, at := range p.sentAt {
		if now.Sub(at) < overdue {
			break
		}
		out.Sent++
		if p.answered[i] {
			gapBegan = -1
			continue
		}
		out.Lost++
		if gapBegan < 0 {
			gapBegan = i
		}
		out.LongestGapMs = max(out.LongestGapMs, at.Add(interval).Sub(p.sentAt[gapBegan]).Milliseconds())
	}
	return out
}
