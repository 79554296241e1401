package config

import "time"

// Reasons of the events that tools read. The others are in pkg/controller/event.
const (
	ReasonWriteRefused  = "WriteRefused"
	ReasonWriteAccepted = "WriteAccepted"
)

// RefusalAgain is when a write that is still refused is reported again: API servers keep events
// for an hour.
const RefusalAgain = 30 * time.Minute
