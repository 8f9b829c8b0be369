/* The program's own account of live memory by kind, for kinds.cu. */
#ifndef GPUPROBE_TESTS_GPU_KINDS_TRUTH_H
#define GPUPROBE_TESTS_GPU_KINDS_TRUTH_H

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <unistd.h>

/* Live memory. `give_back` frees it with one call and returns its error. */
struct Item {
    const char *kind;
    size_t bytes;
    bool at_gpu;
    std::function<int()> give_back;
};

class Truth {
public:
    /* Adds live memory. Returns its serial number. */
    uint64_t appear(const char *kind, size_t bytes, std::function<int()> give_back,
                    bool at_gpu = true)
    {
        items_[born_] = { kind, bytes, at_gpu, give_back };
        return born_++;
    }

    /* Adds live memory by a call that counts as an allocation. */
    uint64_t hold(const char *kind, size_t bytes, std::function<int()> give_back,
                  bool at_gpu = true)
    {
        allocs++;
        return appear(kind, bytes, give_back, at_gpu);
    }

    void resize(uint64_t serial, size_t bytes)
    {
        items_.at(serial).bytes = bytes;
    }

    /* A successful call that counts as a free of it; it may stay live. */
    void released(uint64_t serial)
    {
        frees++;
        freed_.push_back(serial);
    }

    void gone(uint64_t serial)
    {
        items_.erase(serial);
    }

    /* Frees one item. Returns the error of the call. */
    int give_back(uint64_t serial)
    {
        int error = items_.at(serial).give_back();
        if (error) {
            failed++;
            return error;
        }
        released(serial);
        gone(serial);
        return 0;
    }

    /* Frees the items that can be freed, in the order of their allocation. */
    std::vector<uint64_t> serials() const
    {
        std::vector<uint64_t> all;
        for (const auto &entry : items_)
            if (entry.second.give_back)
                all.push_back(entry.first);
        return all;
    }

    const Item &item(uint64_t serial) const
    {
        return items_.at(serial);
    }

    /* A context has been destroyed: of the allocations in [first, last), only pool and physical
     * memory stays live. */
    void context_ended(uint64_t first, uint64_t last)
    {
        for (auto entry = items_.begin(); entry != items_.end();) {
            std::string kind = entry->second.kind;
            bool stays = kind == "async" || kind == "vmm" || kind == "graph" ||
                         entry->first < first || entry->first >= last;
            entry = stays ? std::next(entry) : items_.erase(entry);
        }
    }

    uint64_t born() const
    {
        return born_;
    }

    void print(const char *api, const std::string &step, const std::string &extra) const
    {
        std::string line = "{\"step\":\"" + step + "\",\"pid\":" + std::to_string(getpid()) +
                           ",\"api\":\"" + api + "\",\"born\":" + std::to_string(born_) +
                           ",\"allocs\":" + std::to_string(allocs) +
                           ",\"frees\":" + std::to_string(frees) +
                           ",\"failed\":" + std::to_string(failed) + extra + ",\"live\":[";
        const char *separator = "";
        for (const auto &entry : items_) {
            const Item &item = entry.second;
            line += std::string(separator) + "{\"serial\":" + std::to_string(entry.first) +
                    ",\"kind\":\"" + item.kind + "\",\"bytes\":" + std::to_string(item.bytes) +
                    ",\"device\":" + (item.at_gpu ? "0" : "null") + "}";
            separator = ",";
        }
        line += "],\"freed\":[";
        separator = "";
        for (uint64_t serial : freed_) {
            line += separator + std::to_string(serial);
            separator = ",";
        }
        line += "],\"variables\":{";
        separator = "";
        for (const auto &variable : variables) {
            line += std::string(separator) + "\"" + variable.first +
                    "\":" + std::to_string(variable.second);
            separator = ",";
        }
        line += "},\"facts\":{";
        separator = "";
        for (const auto &fact : facts) {
            line += std::string(separator) + "\"" + fact.first +
                    "\":" + std::to_string(fact.second);
            separator = ",";
        }
        puts((line + "}}").c_str());
        fflush(stdout);
    }

    uint64_t allocs = 0, frees = 0, failed = 0;
    std::map<std::string, size_t> variables; /* requested variables, with their bytes */
    std::map<std::string, long> facts;       /* expected results */

private:
    uint64_t born_ = 0;
    std::map<uint64_t, Item> items_;
    std::vector<uint64_t> freed_;
};

#endif
