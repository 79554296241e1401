package world

import (
	"encoding/json"
	"fmt"
)

// recorded is a version of an object as a record has it.
func recorded(v Version) string {
	if v.New == nil {
		return fmt.Sprintf("%s %s deleted", v.Kind, v.Key)
	}
	text, err := json.Marshal(v.New)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%s %s %s", v.Kind, v.Key, text)
}
