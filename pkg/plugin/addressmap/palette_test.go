package addressmap

import (
	"fmt"
	"math"
	"regexp"
	"testing"
)

// rgb is a colour in linear light, from 0 to 1.
type rgb [3]float64

func parse(t *testing.T, hex string) rgb {
	t.Helper()
	var v [3]uint8
	if _, err := fmt.Sscanf(hex, "#%02x%02x%02x", &v[0], &v[1], &v[2]); err != nil {
		t.Fatalf("%q is no colour: %v", hex, err)
	}
	var c rgb
	for i := range v {
		s := float64(v[i]) / 255
		if c[i] = s / 12.92; s > 0.04045 {
			c[i] = math.Pow((s+0.055)/1.055, 2.4)
		}
	}
	return c
}

// luminance and contrast are from WCAG 2.2.
func (c rgb) luminance() float64 { return 0.2126*c[0] + 0.7152*c[1] + 0.0722*c[2] }

func contrast(a, b rgb) float64 {
	x, y := a.luminance()+0.05, b.luminance()+0.05
	return max(x, y) / min(x, y)
}

func (c rgb) times(m [3]rgb) rgb {
	var out rgb
	for i := range out {
		for j := range c {
			out[i] += m[i][j] * c[j]
		}
		out[i] = min(1, max(0, out[i]))
	}
	return out
}

// visions are how people see colours: Machado, Oliveira and Fernandes, A Physiologically-based
// Model for Simulation of Color Vision Deficiency, 2009, table 1, severity 1.0.
func visions() map[string][3]rgb {
	return map[string][3]rgb{
		"usual":  {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
		"protan": {{0.152286, 1.052583, -0.204868}, {0.114503, 0.786281, 0.099216}, {-0.003882, -0.048116, 1.051998}},
		"deutan": {{0.367322, 0.860646, -0.227968}, {0.280085, 0.672501, 0.047413}, {-0.011820, 0.042940, 0.968881}},
		"tritan": {{1.255528, -0.076749, -0.178779}, {-0.078411, 0.930809, 0.147602}, {0.004733, 0.691367, 0.303900}},
	}
}

// distance is the distance in OKLab (Ottosson, A perceptual color space for image processing,
// 2020), times 100. A difference below about 2 is invisible.
func distance(a, b rgb) float64 {
	x, y := oklab(a), oklab(b)
	return 100 * math.Sqrt((x[0]-y[0])*(x[0]-y[0])+(x[1]-y[1])*(x[1]-y[1])+(x[2]-y[2])*(x[2]-y[2]))
}

func oklab(c rgb) rgb {
	lms := rgb{
		math.Cbrt(0.4122214708*c[0] + 0.5363325363*c[1] + 0.0514459929*c[2]),
		math.Cbrt(0.2119034982*c[0] + 0.6806995451*c[1] + 0.1073969566*c[2]),
		math.Cbrt(0.0883024619*c[0] + 0.2817188376*c[1] + 0.6299787005*c[2]),
	}
	return rgb{
		0.2104542553*lms[0] + 0.7936177850*lms[1] - 0.0040720468*lms[2],
		1.9779984951*lms[0] - 2.4285922050*lms[1] + 0.4505937099*lms[2],
		0.0259040371*lms[0] + 0.7827717662*lms[1] - 0.8086757660*lms[2],
	}
}

// theme has the colours of palette.css, by their CSS variables.
type theme map[string]string

func themes(t *testing.T) map[string]theme {
	t.Helper()
	css, err := web.ReadFile("web/palette.css")
	if err != nil {
		t.Fatal(err)
	}
	themes := map[string]theme{}
	for _, rule := range regexp.MustCompile(`color-scheme: (\w+);([^}]*)`).FindAllStringSubmatch(string(css), -1) {
		th := theme{}
		for _, colour := range regexp.MustCompile(`--(\w+): (#\w{6});`).FindAllStringSubmatch(rule[2], -1) {
			th[colour[1]] = colour[2]
		}
		themes[rule[1]] = th
	}
	if len(themes["light"]) != 28 || len(themes["dark"]) != 28 {
		t.Fatalf("palette.css has %d colours on light and %d on dark, want 28 each", len(themes["light"]), len(themes["dark"]))
	}
	return themes
}

// numbered returns the colour of a free cell, and numbered colours.
func (t theme) numbered(name string, n int) []string {
	colours := []string{t["free"]}
	for i := range n {
		colours = append(colours, t[fmt.Sprintf("%s%d", name, i)])
	}
	return colours
}

// Text is readable by WCAG 2.2 AA: 4.5 to 1, and 3 to 1 for anything but text.
func TestContrast(t *testing.T) {
	for name, th := range themes(t) {
		t.Run(name, func(t *testing.T) {
			for _, behind := range []string{th["page"], th["surface"], th["free"]} {
				for what, colour := range map[string]string{"text": th["text"], "muted text": th["muted"], "a link": th["accent"]} {
					if c := contrast(parse(t, colour), parse(t, behind)); c < 4.5 {
						t.Errorf("%s (%s) on %s has a contrast of %.2f", what, colour, behind, c)
					}
				}
			}
			for what, colour := range map[string]string{"the focus ring": th["accent"], "a conflict": th["Conflict"], "a full block": th["ramp5"]} {
				if c := contrast(parse(t, colour), parse(t, th["free"])); c < 3 {
					t.Errorf("%s (%s) on a free cell has a contrast of %.2f", what, colour, c)
				}
			}
		})
	}
}

// For any colour vision, different meanings have different colours.
func TestColourBlindness(t *testing.T) {
	for name, th := range themes(t) {
		groups := map[string][]string{
			"phases":      {th["free"], th["InService"], th["Draining"], th["CoolingDown"]},
			"utilisation": th.numbered("ramp", 6),
			"nodes":       th.numbered("node", 9),
		}
		for vision, matrix := range visions() {
			for what, colours := range groups {
				for i, a := range colours {
					for _, b := range colours[:i] {
						if d := distance(parse(t, a).times(matrix), parse(t, b).times(matrix)); d < 5 {
							t.Errorf("%s, %s: of %s, %s and %s look alike (%.1f) to people with %s vision", name, what, what, a, b, d, vision)
						}
					}
				}
			}
		}
	}
}

// Higher utilisation is darker on light, and lighter on dark.
func TestRampIsOrdered(t *testing.T) {
	for name, th := range themes(t) {
		for i := 1; i < 5; i++ {
			was, is := parse(t, th[fmt.Sprintf("ramp%d", i-1)]).luminance(), parse(t, th[fmt.Sprintf("ramp%d", i)]).luminance()
			if name == "light" && is >= was || name == "dark" && is <= was {
				t.Errorf("%s: step %d of the ramp is not further on than the one before", name, i)
			}
		}
	}
}
